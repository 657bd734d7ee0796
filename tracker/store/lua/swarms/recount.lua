-- recount.lua: checks a swarm at once or slice by slice, and rebuilds it. A fragment of sweep.lua, after torrent.lua,
-- addresses.lua, swarm.lua and changes.lua.
--
-- While its timeout exists, the hash of a peer is right: members, arrays, counts, addresses and rankings follow it.
local ARRAYS, FAMILIES = { 's4', 'l4', 's6', 'l6', 'sw', 'lw' }, { '4', '6', 'w' }

-- The endpoint of a family, nil for none.
local function endpoint_of(endpoints, family)
  local v4, v6, socket = split_families(endpoints or '')
  local endpoint = family == '4' and v4 or family == '6' and v6 or family == 'w' and socket or ''
  return endpoint ~= '' and endpoint or nil
end

-- True when a slot holds the peer's id and endpoint. `slot` is the position in `ids` and `packed`, parts of two arrays.
local function slot_agrees(ids, packed, slot, pid, endpoint)
  local size = #endpoint
  return string.sub(ids, slot * 20 + 1, slot * 20 + 20) == pid
    and string.sub(packed, slot * size + 1, slot * size + size) == endpoint
end

local function add_address(t, endpoint, pid)
  local net, rest = split_endpoint(endpoint)
  local entries = claim_network(t, net, rest, pid)
  local size = entry_size(net)
  if not entries or #entries >= MAX_ENTRIES * size or find_entry(entries, size, rest .. pid) then return end
  write_entries(t, net, entries, entries .. rest .. pid, rest)
end

-- The stored count of partial seeds; infinite when it is not a number, so that it agrees with no count.
local function paused_count(t)
  return tonumber(call('HGET', t.key, 'paused') or '0') or math.huge
end

-- Checks the counts against each other, and the rankings against them: each member has one kind and is in at least one
-- array.
local function check_counts(t)
  return call('SCARD', P .. 'tpeers:' .. t.ih) == t.seeders + t.leechers
    and t.seeders >= math.max(t.s4, t.s6, t.sw) and t.seeders <= t.s4 + t.s6 + t.sw
    and t.leechers >= math.max(t.l4, t.l6, t.lw) and t.leechers <= t.l4 + t.l6 + t.lw
    and paused_count(t) <= t.leechers
    and tonumber(call('ZSCORE', P .. 'i:seeders', t.tid) or '') == t.seeders
    and tonumber(call('ZSCORE', P .. 'i:leechers', t.tid) or '') == t.leechers
    and tonumber(call('ZSCORE', P .. 'i:snatches', t.tid) or '') == (count_of[call('HGET', t.key, 'snatches')] or 0)
end

-- Adds members to `counts`: seeders `s`, leechers `l`, `paused` ones, and `udp_s` and `udp_l`, which joined over UDP.
-- False if something about one of them is wrong; `agrees(array, slot, pid, endpoint)` tells of each of its slots.
local function count_members(t, members, counts, agrees)
  for _, pidx in ipairs(members) do
    local p, pid = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'active', 'left', 'paused', 'n4', 'n6', 'nw',
      'endpoints', 'udp'), to_raw(pidx)
    if p[1] ~= '1' or not (p[4] or p[5] or p[6]) or call('SISMEMBER', P .. 'p:' .. pidx .. ':torrents', t.tid) == 0 then
      return false
    end
    local kind = kind_of(p[2], p[3])
    for i, family in ipairs(FAMILIES) do
      local slot, endpoint = tonumber(p[3 + i] or ''), endpoint_of(p[7], family)
      if (endpoint or p[3 + i]) and not (slot and endpoint and agrees(kind .. family, slot, pid, endpoint)) then
        return false
      end
    end
    counts[kind] = counts[kind] + 1
    if p[3] == '1' then counts.paused = counts.paused + 1 end
    if p[8] == '1' then counts['udp_' .. kind] = counts['udp_' .. kind] + 1 end
  end
  return true
end

-- How many networks of a page are crowded, and whether a local one has as many entries as it may; nil for an entry that
-- is wrong by `is_right(net, entry)`.
local function check_networks(page, is_right)
  local crowded, at_max = 0, false
  for i = 1, #page, 2 do
    local net, entries = page[i], page[i + 1]
    local size = entry_size(net)
    if (#net ~= 4 and #net ~= 8) or #entries == 0 or #entries % size ~= 0 then return nil end
    for at = 1, #entries, size do
      if not is_right(net, string.sub(entries, at, at + size - 1)) then return nil end
    end
    if #entries == MAX_ENTRIES * size and is_local(net) then at_max = true end
    if is_crowded(net, entries, size) then crowded = crowded + 1 end
  end
  return crowded, at_max
end

-- True when a count of all members gives the stored counts, and `addresses:<ih>` holds exactly their endpoints; then
-- what was counted.
local function check_swarm(t)
  local counts, slots, listed, missing = { s = 0, l = 0, paused = 0, udp_s = 0, udp_l = 0 }, {}, {}, 0
  local ids, packed = {}, {}
  for _, name in ipairs(ARRAYS) do
    local size = sockets.SIZE_OF[string.sub(name, 2)]
    ids[name] = t[name] > 0 and call('GETRANGE', t.arrays .. name .. 'i', 0, t[name] * 20 - 1) or ''
    packed[name] = t[name] > 0 and call('GETRANGE', t.arrays .. name, 0, t[name] * size - 1) or ''
    slots[name] = 0
  end
  local function agrees(name, slot, pid, endpoint)
    if is_local(split_endpoint(endpoint)) then add_address(t, endpoint, pid) end
    slots[name], missing, listed[sockets.listed(endpoint) .. pid] = slots[name] + 1, missing + 1, true
    return slot_agrees(ids[name], packed[name], slot, pid, endpoint)
  end
  if not count_members(t, call('SMEMBERS', P .. 'tpeers:' .. t.ih), counts, agrees) then return false, counts end
  for name, number in pairs(slots) do
    if number ~= t[name] then return false, counts end
  end
  local crowded, at_max = check_networks(call('HGETALL', P .. 'addresses:' .. t.ih), function(net, entry)
    missing = missing - 1
    return listed[net .. entry]
  end)
  return counts.s == t.seeders and counts.l == t.leechers and counts.paused == paused_count(t) and crowded == t.crowded
    and (missing == 0 or at_max) and check_counts(t), counts
end

-- A large swarm, slice by slice

-- Counts some members as count_members() does. A local network may have more endpoints than entries: a missing one is
-- added if there is room.
local function count_slice(t, members, counts)
  return count_members(t, members, counts, function(name, slot, pid, endpoint)
    local size, net, rest = #endpoint, split_endpoint(endpoint)
    if slot >= t[name] or not slot_agrees(call('GETRANGE', t.arrays .. name .. 'i', slot * 20, slot * 20 + 19),
        call('GETRANGE', t.arrays .. name, slot * size, slot * size + size - 1), 0, pid, endpoint) then
      return false
    end
    if is_local(net) then
      add_address(t, endpoint, pid)
      return true
    end
    local entries = call('HGET', P .. 'addresses:' .. t.ih, net)
    return entries and find_entry(entries, entry_size(net), rest .. pid)
  end)
end

-- True when each of the slots [from, till) of an array belongs to a member that holds its number.
local function check_slots(t, name, from, till)
  local family, size = string.sub(name, 2), sockets.SIZE_OF[string.sub(name, 2)]
  if till > 0 and call('STRLEN', t.arrays .. name) < till * size then return false end
  local ids = call('GETRANGE', t.arrays .. name .. 'i', from * 20, till * 20 - 1)
  local packed = call('GETRANGE', t.arrays .. name, from * size, till * size - 1)
  for slot = from, till - 1 do
    local pid = string.sub(ids, (slot - from) * 20 + 1, (slot - from) * 20 + 20)
    if #pid < 20 then return false end
    local pidx = to_hex(pid)
    local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'n' .. family, 'active', 'left', 'paused', 'endpoints')
    local endpoint = endpoint_of(p[5], family)
    if tonumber(p[1] or '') ~= slot or p[2] ~= '1' or kind_of(p[3], p[4]) ~= string.sub(name, 1, 1)
        or not endpoint or not slot_agrees(ids, packed, slot - from, pid, endpoint)
        or call('SISMEMBER', P .. 'tpeers:' .. t.ih, pidx) == 0 then
      return false
    end
  end
  return true
end

-- The number of crowded networks in a page of networks; nil when an entry belongs to no such peer.
local function check_addresses(t, page)
  return (check_networks(page, function(net, entry)
    local rest = string.sub(entry, 1, -21)
    local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. to_hex(string.sub(entry, -20)), 'active', 'endpoints')
    local family = string.sub(rest, -2) == '\0\0' and 'w' or #net == 4 and '4' or '6'
    local endpoint = p[1] == '1' and endpoint_of(p[2], family)
    return endpoint and sockets.listed(endpoint) == net .. rest
  end))
end

-- Rebuilding from the hashes of the peers, O(swarm). It is needed only after other programs changed keys.

-- The ids of all peers that the member set or an array names.
local function all_members(t)
  local ids, seen = {}, {}
  local function add(pidx)
    if not seen[pidx] then seen[pidx], ids[#ids + 1] = true, pidx end
  end
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. t.ih)) do add(pidx) end
  for _, name in ipairs(ARRAYS) do
    local packed = call('GETRANGE', t.arrays .. name .. 'i', 0, -1)
    for at = 1, #packed - 19, 20 do add(to_hex(string.sub(packed, at, at + 19))) end
  end
  return ids
end

local function readmit(t, pidx)
  local key = P .. 'p:' .. t.tid .. ':' .. pidx
  local p = call('HMGET', key, 'active', 'left', 'paused', 'endpoints')
  local endpoints = p[4] or ''
  local v4, v6, socket = split_families(endpoints)
  if p[1] ~= '1' or call('EXISTS', P .. 'ptimeout:' .. t.tid .. ':' .. pidx) == 0
      or #endpoints ~= #v4 + #v6 + #socket or endpoints == '' then
    call('SREM', P .. 'tpeers:' .. t.ih, pidx)
    call('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
    if p[1] == '1' or not p[1] then call('UNLINK', key) end
    return
  end
  local kind, pid = kind_of(p[2], p[3]), to_raw(pidx)
  call('HDEL', key, 'n4', 'n6', 'nw')
  call('SADD', P .. 'p:' .. pidx .. ':torrents', t.tid)
  for _, family in ipairs(FAMILIES) do
    local endpoint = endpoint_of(endpoints, family)
    if endpoint then
      add_address(t, endpoint, pid)
      call('HSET', key, 'n' .. family, insert_slot(t, kind, family, endpoint, pid))
    end
  end
  call('SADD', P .. 'tpeers:' .. t.ih, pidx)
  count_peer(t, kind, p[3] == '1', 1)
end

local function rebuild(t)
  local ids = all_members(t)
  for _, name in ipairs(ARRAYS) do
    call('UNLINK', t.arrays .. name, t.arrays .. name .. 'i')
    t[name] = 0
  end
  t.seeders, t.leechers, t.paused, t.crowded = 0, 0, 0, 0
  local addresses = call('HGETALL', P .. 'addresses:' .. t.ih)
  for i = 1, #addresses, 2 do -- they leave the counts of all swarms
    local net = addresses[i]
    if #net == 4 or #net == 8 then count_entries(net, -math.floor(#addresses[i + 1] / entry_size(net))) end
  end
  call('UNLINK', P .. 'addresses:' .. t.ih)
  call('HDEL', t.key, 'paused')
  for _, pidx in ipairs(ids) do readmit(t, pidx) end
  save_torrent(t)
  if t.seeders + t.leechers > 0 then redis.pcall('ZREM', P .. 'i:empty', t.tid) end
  write_rankings(t, t.tid)
  if max_changes > 0 then feed.record('recounted', t, '', '', {}, {}) end
end
