-- changes_removal.lua: records in the change feed that a peer left. After changes.lua.

-- A peer left by no announce of its own. Its hash still exists.
local function record_removal(change, t, pidx, uid, left)
  if max_changes == 0 then return end
  local v
  if uid ~= '' then
    v = redis.pcall('HMGET', P .. 'u:' .. uid .. ':t:' .. t.tid, 'uploaded', 'downloaded', 'seed_time')
  else
    v = redis.pcall('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'uploaded', 'downloaded')
  end
  record_change(change, t, pidx, uid, left or '', v[1] or '0', v[2] or '0', v[3] or '0')
end
