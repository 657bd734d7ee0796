-- own_peers.lua: a user has at most `max_peers` peers in a torrent (0: any number). When one more joins, the one that
-- is silent longest leaves. A fragment of announce.lua, after accounts.lua and endpoint_takeover.lua.
--
-- `peer_ids` of an account holds the ids of the peers that joined last, 20 bytes each, oldest first. Peers that have
-- left are removed when it is full. It begins empty when the limit is switched on, so older peers are not counted.

local ACCOUNT_WITH_PEERS = { unpack(ACCOUNT) }
ACCOUNT_WITH_PEERS[#ACCOUNT + 1] = 'peer_ids'

-- The user's other active peers, in the order of their joins. Nothing is written yet. Nil when the account lists fewer
-- than allowed: then the peer is only added to them, whether they are still active or not.
local function load_own_peers(t, r, a)
  local listed, own = a.listed or '', {}
  if #listed < 20 * max_peers then
    for at = 1, #listed - 19, 20 do
      if sub(listed, at, at + 19) == r.pid then listed = without_entry(listed, at, 20) end
    end
    a.peer_ids = listed .. r.pid
    return
  end
  for at = 1, #listed - 19, 20 do
    local pid = sub(listed, at, at + 19)
    if pid ~= r.pid then
      local v = call('HMGET', P .. 'p:' .. t.tid .. ':' .. to_hex(pid), 'active', 'user_id', 'last_announce')
      if v[1] == '1' and v[2] == r.uid then
        own[#own + 1] = { pid = pid, order = #own, last = tonumber(v[3] or '') or 0 }
      end
    end
  end
  if #own >= max_peers then -- arrays of a wrong type have to fail before the first write
    for _, array in ipairs({ 's4', 's4i', 'l4', 'l4i', 's6', 's6i', 'l6', 'l6i' }) do
      call('STRLEN', t.arrays .. array)
    end
  end
  return own
end

local function is_silent_longer(one, other)
  return one.last < other.last or one.last == other.last and one.order < other.order
end

-- Removes as many of the user's peers as make room for one. Those that evict() has removed do not count. Returns the
-- number removed, and the peers that stay, for save_own_peers().
local function remove_surplus(t, r, own)
  local stay, removed = {}, 0
  for _, peer in ipairs(own) do
    if not r.evicted or load_holder(t, peer.pid, '').active then stay[#stay + 1] = peer end
  end
  while #stay >= max_peers do
    local longest = 1
    for i = 2, #stay do
      if is_silent_longer(stay[i], stay[longest]) then longest = i end
    end
    local holder = load_holder(t, table.remove(stay, longest).pid, '')
    drop_holder(t, holder, holder.endpoints)
    removed = removed + 1
  end
  return removed, stay
end

-- What the account lists after the join.
local function listed_peers(r, stay)
  local ids = {}
  for i, peer in ipairs(stay) do ids[i] = peer.pid end
  ids[#ids + 1] = r.pid
  return table.concat(ids)
end
