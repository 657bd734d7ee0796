-- recount_slices.lua: checks a large swarm slice by slice. A fragment of sweep.lua, after recount.lua.

local function is_own_slot(t, name, slot, pid, endpoint)
  slot = tonumber(slot)
  if not slot or slot >= t[name] or not endpoint then return false end
  local size = #endpoint
  return slot_agrees(call('GETRANGE', t.arrays .. name .. 'i', slot * 20, slot * 20 + 19),
    call('GETRANGE', t.arrays .. name, slot * size, slot * size + size - 1), 0, pid, endpoint)
end

-- A local network may have more endpoints than entries: a missing one is added if there is room.
local function has_address(t, endpoint, pid)
  local net, rest = split_endpoint(endpoint)
  if is_local(net) then
    add_address(t, endpoint, pid)
    return true
  end
  local entries = call('HGET', P .. 'addresses:' .. t.ih, net)
  return entries and find_entry(entries, entry_size(net), rest .. pid) ~= nil
end

-- In a swarm without a count of crowded networks, missing addresses are added, and that is no repair.
local function check_member_addresses(t, v4, v6, pid)
  if t.crowded then
    return not (v4 and not has_address(t, v4, pid) or v6 and not has_address(t, v6, pid))
  end
  if v4 then add_address(t, v4, pid) end
  if v6 then add_address(t, v6, pid) end
  return true
end

-- Kind and paused flag of a member, and whether it joined over UDP; nil if something about it is wrong.
local function check_member(t, pid, pidx)
  local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'active', 'left', 'paused', 'n4', 'n6', 'endpoints', 'udp')
  if p[1] ~= '1' or not (p[4] or p[5]) then return nil end
  local kind, v4, v6 = kind_of(p[2], p[3]), endpoint_of(p[6], '4'), endpoint_of(p[6], '6')
  if (p[4] or v4) and not is_own_slot(t, kind .. '4', p[4], pid, v4) then return nil end
  if (p[5] or v6) and not is_own_slot(t, kind .. '6', p[5], pid, v6) then return nil end
  if not check_member_addresses(t, v4, v6, pid) then return nil end
  if call('SISMEMBER', P .. 'p:' .. pidx .. ':torrents', t.tid) == 0 then return nil end
  return kind, p[3] == '1', p[7] == '1'
end

-- True when each of the slots [from, till) of an array belongs to a member that holds its number.
local function check_slots(t, name, from, till)
  local family, size = string.sub(name, 2), endpoint_size(name)
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
  local crowded = 0
  for i = 1, #page, 2 do
    local net, entries = page[i], page[i + 1]
    local size = entry_size(net)
    if (#net ~= 4 and #net ~= 8) or #entries == 0 or #entries % size ~= 0 then return nil end
    for at = 1, #entries, size do
      local pid = string.sub(entries, at + size - 20, at + size - 1)
      local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. to_hex(pid), 'active', 'endpoints')
      local endpoint = p[1] == '1' and endpoint_of(p[2], #net == 4 and '4' or '6')
      if endpoint ~= net .. string.sub(entries, at, at + size - 21) then return nil end
    end
    if is_crowded(net, entries, size) then crowded = crowded + 1 end
  end
  return crowded
end
