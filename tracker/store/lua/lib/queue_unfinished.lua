-- queue_unfinished.lua: finds an unfinished job by its payload. After queue.lua.

-- The id of the unfinished job with this fingerprint; nil or false when there is none.
local function find_unfinished(Q, fingerprint)
  local id = call('HGET', Q.fingerprints, fingerprint)
  local v = id and read_job(id)
  return v and v[1] ~= 'completed' and v[1] ~= 'failed' and id
end
