-- recount.lua: does a swarm agree with itself, and making it agree. A fragment for sweep.lua, after swarm.lua.
-- The truth is the peer's own hash while its timeout lives; tpeers, arrays, counts and rankings follow from it.

local function holds(t, name, slot, pid)
  slot = tonumber(slot)
  return slot ~= nil and slot < t[name] and call('GETRANGE', t.arrays .. name .. 'i', slot * 20, slot * 20 + 19) == pid
end

-- Kind and paused flag of a member whose slots are its own, and for IPv4 and IPv6 whether it has one; or nil.
local function check_member(t, pid, pidx)
  local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'active', 'left', 'paused', 'n4', 'n6')
  if p[1] ~= '1' or not (p[4] or p[5]) then return nil end
  local kind = kind_of(p[2], p[3])
  if p[4] and not holds(t, kind .. '4', p[4], pid) then return nil end
  if p[5] and not holds(t, kind .. '6', p[5], pid) then return nil end
  return kind, p[3] == '1', p[4], p[5]
end

-- Whether the array holds endpoints for as many slots.
local function long_enough(t, name, slots)
  return slots == 0 or call('STRLEN', t.arrays .. name) >= slots * (string.sub(name, 2) == '4' and 6 or 18)
end

-- True when each of the slots [from, till) of an array belongs to a member that says so.
local function check_slots(t, name, from, till)
  if not long_enough(t, name, till) then return false end
  local ids, field = call('GETRANGE', t.arrays .. name .. 'i', from * 20, till * 20 - 1), 'n' .. string.sub(name, 2)
  for slot = from, till - 1 do
    local pidx = string.sub(ids, (slot - from) * 20 + 1, (slot - from) * 20 + 20)
    if #pidx < 20 then return false end
    pidx = hex(pidx)
    local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, field, 'active', 'left', 'paused')
    if tonumber(p[1] or '') ~= slot or p[2] ~= '1' or kind_of(p[3], p[4]) ~= string.sub(name, 1, 1)
        or call('SISMEMBER', P .. 'tpeers:' .. t.ih, pidx) == 0 then
      return false
    end
  end
  return true
end

-- What is no number agrees with none.
local function paused_count(t)
  return tonumber(call('HGET', t.key, 'paused') or '0') or math.huge
end

local function check_rankings(t)
  return tonumber(call('ZSCORE', P .. 'i:seeders', t.tid) or '') == t.seeders
    and tonumber(call('ZSCORE', P .. 'i:leechers', t.tid) or '') == t.leechers
    and tonumber(call('ZSCORE', P .. 'i:snatches', t.tid) or '') == snatches_of(t)
end

-- What must hold of the counts whatever the size: nobody is in two kinds, everybody is in an array.
local function check_bounds(t)
  return call('SCARD', P .. 'tpeers:' .. t.ih) == t.seeders + t.leechers
    and t.seeders >= math.max(t.s4, t.s6) and t.seeders <= t.s4 + t.s6
    and t.leechers >= math.max(t.l4, t.l6) and t.leechers <= t.l4 + t.l6
    and paused_count(t) <= t.leechers and check_rankings(t)
end

-- True when counting everybody gives what is written down. O(swarm). Where each member's slots are its own and there are
-- as many slots as members have, none belongs to anybody else: the slots need not be looked at one by one.
local function agrees(t)
  local s, l, paused = 0, 0, 0
  local slots = { s4 = 0, l4 = 0, s6 = 0, l6 = 0 }
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. t.ih)) do
    local kind, is_paused, v4, v6 = check_member(t, raw(pidx), pidx)
    if not kind then return false end
    if kind == 's' then s = s + 1 else l = l + 1 end
    if is_paused then paused = paused + 1 end
    if v4 then slots[kind .. '4'] = slots[kind .. '4'] + 1 end
    if v6 then slots[kind .. '6'] = slots[kind .. '6'] + 1 end
  end
  for name, number in pairs(slots) do
    if number ~= t[name] or not long_enough(t, name, number) then return false end
  end
  return s == t.seeders and l == t.leechers and paused == paused_count(t) and check_bounds(t)
end

local function everybody(t)
  local ids, seen = {}, {}
  local function add(pidx)
    if not seen[pidx] then
      seen[pidx], ids[#ids + 1] = true, pidx
    end
  end
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. t.ih)) do add(pidx) end
  for _, name in ipairs({ 's4i', 'l4i', 's6i', 'l6i' }) do
    local packed = call('GETRANGE', t.arrays .. name, 0, -1)
    for at = 1, #packed - 19, 20 do add(hex(string.sub(packed, at, at + 19))) end
  end
  return ids
end

local function readmit(t, pidx)
  local key = P .. 'p:' .. t.tid .. ':' .. pidx
  local p = call('HMGET', key, 'active', 'left', 'paused', 'endpoints')
  local endpoints = p[4] or ''
  if p[1] ~= '1' or call('EXISTS', P .. 'ptimeout:' .. t.tid .. ':' .. pidx) == 0
      or not (#endpoints == 6 or #endpoints == 18 or #endpoints == 24) then
    call('SREM', P .. 'tpeers:' .. t.ih, pidx)
    call('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
    if p[1] == '1' or not p[1] then call('UNLINK', key) end
    return
  end
  local kind, pid = kind_of(p[2], p[3]), raw(pidx)
  call('HDEL', key, 'n4', 'n6')
  if #endpoints ~= 18 then call('HSET', key, 'n4', enter(t, kind, '4', string.sub(endpoints, 1, 6), pid)) end
  if #endpoints ~= 6 then call('HSET', key, 'n6', enter(t, kind, '6', string.sub(endpoints, -18), pid)) end
  call('SADD', P .. 'tpeers:' .. t.ih, pidx)
  count(t, kind, p[3] == '1', 1)
end

-- Builds the swarm anew. O(swarm), and never needed unless somebody else wrote into it.
local function rebuild(t)
  local ids = everybody(t)
  for _, name in ipairs({ 's4', 'l4', 's6', 'l6' }) do
    call('UNLINK', t.arrays .. name, t.arrays .. name .. 'i')
    t[name] = 0
  end
  t.seeders, t.leechers, t.paused = 0, 0, 0
  call('HDEL', t.key, 'paused')
  for _, pidx in ipairs(ids) do readmit(t, pidx) end
  save(t)
  call('ZADD', P .. 'i:seeders', t.seeders, t.tid)
  call('ZADD', P .. 'i:leechers', t.leechers, t.tid)
  call('ZADD', P .. 'i:snatches', snatches_of(t), t.tid)
end
