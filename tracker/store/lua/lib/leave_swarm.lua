-- leave_swarm.lua: removes a peer from a swarm. After array_remove.lua, peers.lua and addresses.lua.

-- Removes the peer from everything but its own hash. `n4` and `n6` are its slots. The arrays come first: arrays of a
-- wrong type fail before anything has changed.
local function leave_swarm(t, pid, pidx, left, paused, n4, n6, endpoints)
  local kind = kind_of(left, paused)
  if n4 then remove_slot(t, kind, '4', tonumber(n4), pid) end
  if n6 then remove_slot(t, kind, '6', tonumber(n6), pid) end
  if call('SREM', P .. 'tpeers:' .. t.ih, pidx) == 1 then count_peer(t, kind, paused == '1', -1) end
  redis.pcall('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
  remove_addresses(t, endpoints or '', pid)
end
