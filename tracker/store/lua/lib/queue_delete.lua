-- queue_delete.lua: deletes a job. After queue.lua.

local function delete_job(Q, id)
  local v = read_job(id, 'fingerprint')
  if v and v[2] and call('HGET', Q.fingerprints, v[2]) == id then call('HDEL', Q.fingerprints, v[2]) end
  call('UNLINK', P .. 'job:' .. id)
end
