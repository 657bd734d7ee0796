-- recount.lua: checks all of a swarm at once, O(swarm). A fragment of sweep.lua, after torrent.lua, addresses.lua
-- and swarm.lua.
--
-- The hash of a peer is the source of truth while its timeout exists. Member sets, arrays, counts, addresses and
-- rankings follow from it.
local ARRAYS = { 's4', 'l4', 's6', 'l6' }

local function endpoint_size(array)
  return string.sub(array, 2) == '4' and 6 or 18
end

-- The endpoint of a family, nil for none.
local function endpoint_of(endpoints, family)
  local v4, v6 = split_families(endpoints or '')
  local endpoint = family == '4' and v4 or v6
  return endpoint ~= '' and endpoint or nil
end

-- True when a slot holds the peer's id and endpoint. `ids` and `packed` are slices of the two arrays; `slot` is the
-- position in them.
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

local function rankings_agree(t)
  return tonumber(call('ZSCORE', P .. 'i:seeders', t.tid) or '') == t.seeders
    and tonumber(call('ZSCORE', P .. 'i:leechers', t.tid) or '') == t.leechers
    and tonumber(call('ZSCORE', P .. 'i:snatches', t.tid) or '') == load_snatches(t)
end

-- Checks the counts against each other: each member has one kind and is in at least one array.
local function check_counts(t)
  return call('SCARD', P .. 'tpeers:' .. t.ih) == t.seeders + t.leechers
    and t.seeders >= math.max(t.s4, t.s6) and t.seeders <= t.s4 + t.s6
    and t.leechers >= math.max(t.l4, t.l6) and t.leechers <= t.l4 + t.l6
    and paused_count(t) <= t.leechers and rankings_agree(t)
end

-- Checks and counts all members. Returns nil if something is wrong; else seeders, leechers, paused members, slots by
-- array, and endpoints with their peer ids. Adds missing addresses if the swarm has no count of crowded networks yet.
-- `t.udp` counts, by kind, those that joined over UDP.
local function count_members(t)
  t.udp = { s = 0, l = 0 }
  local ids, packed, slots = {}, {}, {}
  for _, name in ipairs(ARRAYS) do
    local size = endpoint_size(name)
    ids[name] = t[name] > 0 and call('GETRANGE', t.arrays .. name .. 'i', 0, t[name] * 20 - 1) or ''
    packed[name] = t[name] > 0 and call('GETRANGE', t.arrays .. name, 0, t[name] * size - 1) or ''
    slots[name] = 0
  end
  local seeders, leechers, paused, found = 0, 0, 0, {}
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. t.ih)) do
    local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'active', 'left', 'paused', 'n4', 'n6', 'endpoints',
      'udp')
    if p[1] ~= '1' or not (p[4] or p[5]) or call('SISMEMBER', P .. 'p:' .. pidx .. ':torrents', t.tid) == 0 then
      return nil
    end
    local kind, pid = kind_of(p[2], p[3]), to_raw(pidx)
    for i, family in ipairs({ '4', '6' }) do
      local slot, endpoint, name = tonumber(p[3 + i] or ''), endpoint_of(p[6], family), kind .. family
      if endpoint or p[3 + i] then
        if not (slot and endpoint) or not slot_agrees(ids[name], packed[name], slot, pid, endpoint) then return nil end
        slots[name], found[#found + 1] = slots[name] + 1, endpoint .. pid
        if not t.crowded then add_address(t, endpoint, pid) end
      end
    end
    if kind == 's' then seeders = seeders + 1 else leechers = leechers + 1 end
    if p[3] == '1' then paused = paused + 1 end
    if p[7] == '1' then t.udp[kind] = t.udp[kind] + 1 end
  end
  return seeders, leechers, paused, slots, found
end

-- True when `addresses:<ih>` holds exactly these endpoints with their peer ids.
local function check_all_addresses(t, found)
  local expected, entries, crowded, at_max = {}, 0, 0, false
  for _, one in ipairs(found) do
    local endpoint = string.sub(one, 1, -21)
    if is_local(split_endpoint(endpoint)) then add_address(t, endpoint, string.sub(one, -20)) end
    expected[one] = true
  end
  local page = call('HGETALL', P .. 'addresses:' .. t.ih)
  for i = 1, #page, 2 do
    local net, held = page[i], page[i + 1]
    local size = entry_size(net)
    for at = 1, #held, size do
      if not expected[net .. string.sub(held, at, at + size - 1)] then return false end
      entries = entries + 1
    end
    if #held == MAX_ENTRIES * size and is_local(net) then at_max = true end
    if is_crowded(net, held, size) then crowded = crowded + 1 end
  end
  if not t.crowded then t.crowded = crowded end
  return (entries == #found or at_max) and crowded == t.crowded
end

-- True when a count of all members gives the stored counts.
local function check_swarm(t)
  local seeders, leechers, paused, slots, found = count_members(t)
  if not seeders then return false end
  for name, number in pairs(slots) do
    if number ~= t[name] then return false end
  end
  return seeders == t.seeders and leechers == t.leechers and paused == paused_count(t)
    and check_all_addresses(t, found) and check_counts(t)
end
