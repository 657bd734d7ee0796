-- own_peers.lua: which peers a user has on a torrent. Writes `marks` of peers.
--
-- `peer_ids` of an account lists the peers of the user that joined last, 20 bytes each, oldest first; those that have
-- left stay in it until it is full. It begins anew with a user's only peer. From the second peer on, announces of all
-- of them overlap: none is a regular one until it is the only peer again, so `marks` of each is 'x' (update.lua).

-- The list with the peer that joins beside others.
local function with_peer(a, pid)
  local listed, others = sub(a.listed or '', -20 * rules.max_listed), ''
  for at = 1, #listed - 19, 20 do
    local other = sub(listed, at, at + 19)
    if other ~= pid then others = others .. other end
  end
  return sub(others, -20 * (rules.max_listed - 1)) .. pid
end

local function mark_overlapping(a)
  for at = 1, #a.peer_ids - 19, 20 do
    local key = P .. 'p:' .. a.tid .. ':' .. to_hex(sub(a.peer_ids, at, at + 19))
    local v = redis.pcall('HMGET', key, 'user_id', 'active')
    if v[1] == a.uid and v[2] == '1' then redis.pcall('HSET', key, 'marks', 'x') end
  end
end
