-- swarm.lua: changes a swarm: its packed arrays, the counts by kind of peer, who leaves it, and when timeouts of peers
-- are checked. Needs `memory` (seconds that the hash of an inactive peer of a user is kept; 0: it is deleted, as an
-- anonymous peer's hash always is).
--@ include lib/addresses.lua
--@ include lib/hex.lua

-- s: seeder; l: leecher, partial seeds included.
local function kind_of(left, paused)
  return left == '0' and paused ~= '1' and 's' or 'l'
end

local function count_peer(t, kind, paused, by)
  local name = kind == 's' and 'seeders' or 'leechers'
  local count = t[name] + by
  t[name] = count > 0 and count or 0
  if paused then t.paused = t.paused + by end
  t.moves = t.moves + 1
end

local function is_remembered(uid)
  return memory > 0 and (uid or '') ~= ''
end

local function deactivate_peer(key)
  call('HSET', key, 'active', '0')
  call('HDEL', key, 'n4', 'n6', 'nw', 'endpoints')
  call('EXPIRE', key, memory)
end

-- luacheck: push ignore 211 (not every script adds peers)
-- Redis doubles the allocation of a string that grows, up to a megabyte, which made up a third of all array memory. So
-- a full array is first extended by exactly an eighth. Fewer than MIN_RESERVED slots are doubled: that adds about as
-- much. `slots`: number in use; `capacity`: number after the extension.
local MIN_RESERVED = 9
local function reserve(key, slots, capacity, size)
  local large = 524288
  if slots * size > large then return end
  call('SET', key, call('GETRANGE', key, 0, slots * size - 1) .. string.rep('\0', (capacity - slots) * size))
end

-- Adds an endpoint to the array `kind .. family` and returns its slot. With `random`, and once the array holds more
-- than one reply, the slot is random and its peer moves to the end, so that peers that join together are not returned
-- together. The slot at the end counts only after save_torrent(). So when the arrays are of a wrong type, this fails
-- and changes no slot that counts. The ids are written first, as their length shows whether the arrays were full.
local function insert_slot(t, kind, family, endpoint, pid, random)
  local name = kind .. family
  local key, last, size, shuffled_from = t.arrays .. name, t[name], #endpoint, 50
  local slot = random and last >= shuffled_from and math.floor(random / 3) % (last + 1) or last
  local ids, last_id, last_endpoint = key .. 'i', pid, endpoint
  if slot < last then
    last_id = call('GETRANGE', ids, slot * 20, slot * 20 + 19)
    last_endpoint = call('GETRANGE', key, slot * size, slot * size + size - 1)
    if #last_id < 20 or #last_endpoint < size then slot, last_id, last_endpoint = last, pid, endpoint end
  end
  local length = call('SETRANGE', ids, last * 20, last_id)
  if length == last * 20 + 20 and last >= MIN_RESERVED and call('STRLEN', key) <= last * size then
    local capacity = last + math.max(4, math.floor(last / 8))
    reserve(key, last, capacity, size)
    reserve(ids, last + 1, capacity, 20)
  end
  call('SETRANGE', key, last * size, last_endpoint)
  if slot < last then
    call('SETRANGE', ids, slot * 20, pid)
    call('SETRANGE', key, slot * size, endpoint)
    redis.pcall('HSET', P .. 'p:' .. t.tid .. ':' .. to_hex(last_id), 'n' .. family, last)
  end
  t[name] = last + 1
  return slot
end
-- luacheck: pop

-- Redis cannot shorten a string, so bytes beyond the last slot remain. They are freed once in 64 removals: to copy the
-- array at each removal would cost O(swarm).
local function trim_array(key, n, size)
  if n % 64 ~= 0 then return end
  if n == 0 then
    call('UNLINK', key, key .. 'i')
  elseif call('STRLEN', key) > (2 * n + 128) * size then
    call('SET', key, call('GETRANGE', key, 0, n * size - 1))
    call('SET', key .. 'i', call('GETRANGE', key .. 'i', 0, n * 20 - 1))
  end
end

-- The ids in two slots of an array. One read returns both when the slots are close together.
local function read_ids(ids, slot, last)
  local near = 100
  if last - slot > near then
    return call('GETRANGE', ids, slot * 20, slot * 20 + 19), call('GETRANGE', ids, last * 20, last * 20 + 19)
  end
  local both = call('GETRANGE', ids, slot * 20, last * 20 + 19)
  if #both < (last - slot + 1) * 20 then return end
  if slot == last then return both, both end
  return both:sub(1, 20), both:sub(-20)
end

-- Removes a slot by moving the last one into it. A slot that holds another peer stays: the sweep repairs the swarm.
local function remove_slot(t, kind, family, slot, pid)
  local name, size = kind .. family, sockets.SIZE_OF[family]
  local key, last = t.arrays .. name, t[name] - 1
  if last < 0 or slot > last then return end
  local ids = key .. 'i'
  local own, moved = read_ids(ids, slot, last)
  if own ~= pid then return end
  if slot < last then
    call('SETRANGE', key, slot * size, call('GETRANGE', key, last * size, last * size + size - 1))
    call('SETRANGE', ids, slot * 20, moved)
    call('HSET', P .. 'p:' .. t.tid .. ':' .. to_hex(moved), 'n' .. family, slot)
  end
  t[name] = last
  trim_array(key, last, size)
end

-- Removes the peer from everything but its own hash. `n4` and `n6` are its slots. The arrays come first: arrays of a
-- wrong type fail before anything has changed.
local function leave_swarm(t, pid, pidx, left, paused, n4, n6, endpoints)
  local kind = kind_of(left, paused)
  if n4 then remove_slot(t, kind, '4', count_of[n4], pid) end
  if n6 then remove_slot(t, kind, '6', count_of[n6], pid) end
  if endpoints and #endpoints >= sockets.BYTES then
    local slot = count_of[call('HGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'nw')]
    if slot then remove_slot(t, kind, 'w', slot, pid) end
  end
  if call('SREM', P .. 'tpeers:' .. t.ih, pidx) == 1 then count_peer(t, kind, paused == '1', -1) end
  redis.pcall('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
  remove_addresses(t, endpoints or '', pid)
end

-- luacheck: push ignore 113 211 (not every script sets timeouts)
-- When the timeout of a peer is checked; needs `now` and `min_timeout` (s).
--
-- A peer is in one due list at a time. Its timeout key holds the name of the list in four digits: more would cost 16
-- bytes per peer. An announce renews the timeout and leaves the peer in its list; when the list is due, due.lua moves
-- the peer to the next one. A peer's list is never later than the shortest timeout from now, so a shortened interval is
-- still noticed in time. Lists are written once per call.
local DUE_STEP = 2 -- seconds: a list holds the timeouts that end in the two seconds before its deadline
local due_entries = {}

-- What the timeouts of the peers in a list hold. The next list with the same name comes five hours later; a peer in
-- both does no harm, as a peer that is found in two lists moves on to one.
local function due_name(deadline)
  return string.format('%d', deadline / DUE_STEP % 10000)
end

-- Adds a peer whose timeout ends in so many milliseconds to its list. Returns what its timeout has to hold.
local function add_due(tid, pid, milliseconds)
  local seconds = milliseconds / 1000
  if seconds > min_timeout then seconds = min_timeout end
  local due = now + 1 + seconds
  due = due + -due % DUE_STEP -- rounded up
  local entries = due_entries[due]
  if not entries then
    entries = { name = due_name(due) }
    due_entries[due] = entries
  end
  entries[#entries + 1] = pid .. tid
  return entries.name
end

local function save_due_entries()
  for due, entries in pairs(due_entries) do
    local list = P .. 'due:' .. string.format('%.0f', due)
    if call('RPUSH', list, unpack(entries)) == #entries then call('EXPIREAT', list, due + 86400) end
  end
end
-- luacheck: pop
