-- swarm.lua: the dense arrays, the counts and the way out of a swarm. A fragment: announce.lua, reap.lua,
-- due.lua, sweep.lua and others include it after `P` (the prefix), `now` and `memory` are set.
--
-- A torrent under work is the table `t` made by load(); its figures are changed in memory by enter(),
-- exit() and leave() and written once, by save() (`paused` is the change of that count); what is derived from the figures of all
-- torrents is written by save_derived(). All of it happens inside one script, so nobody sees a state between.

local call = redis.call
local derived = {
  seeders = { total = 'stats:seeders', grown = 0, ranks = {} }, leechers = { total = 'stats:leechers', grown = 0, ranks = {} },
}

local function hex(id)
  return string.format('%08x%08x%08x%08x%08x', struct.unpack('>I4I4I4I4I4', id))
end

local function raw(idx)
  if #idx == 40 then
    return struct.pack('>I4I4I4I4I4', tonumber(string.sub(idx, 1, 8), 16), tonumber(string.sub(idx, 9, 16), 16),
      tonumber(string.sub(idx, 17, 24), 16), tonumber(string.sub(idx, 25, 32), 16), tonumber(string.sub(idx, 33, 40), 16))
  end
  return (string.gsub(idx, '..', function(digits) return string.char(tonumber(digits, 16)) end))
end

local function decimal(number)
  return string.format('%.0f', number)
end

-- A count as it is stored; false for what is none, because somebody else wrote it. It goes for 0 until the sweep counts anew.
local function stored_count(digits)
  return digits and #digits <= 15 and string.find(digits, '^%d+$') and tonumber(digits) or false
end

-- The torrent's figures, and what up to two more fields hold. `saved` is what is written down of them. Tables are made with all they
-- hold: one that grows field by field costs more than what is put into it.
local function load(ih, ...)
  local key = P .. 't:' .. ih
  local v = call('HMGET', key, 'tid', 'seeders', 'leechers', 's4', 'l4', 's6', 'l6', ...)
  local seeders, leechers = stored_count(v[2]), stored_count(v[3])
  local s4, l4, s6, l6 = tonumber(v[4]) or 0, tonumber(v[5]) or 0, tonumber(v[6]) or 0, tonumber(v[7]) or 0
  return {
    ih = ih, key = key, arrays = P .. 'swarm:' .. ih .. ':', tid = v[1], paused = 0,
    seeders = seeders or 0, leechers = leechers or 0, s4 = s4, l4 = l4, s6 = s6, l6 = l6,
    saved = { seeders = seeders, leechers = leechers, s4 = s4, l4 = l4, s6 = s6, l6 = l6 },
  }, v[8], v[9]
end

local function snatches_of(t)
  return stored_count(call('HGET', t.key, 'snatches')) or 0
end

-- Writes the figures of `t` that have changed; what is derived from them waits for save_derived(). Neither must fail: one of many
-- torrents, or a batch that is applied already, would be to blame for the rest. What somebody else put in the place of a figure is
-- left there; the sweep makes it anew.
local changes = {} -- kept from call to call, as a table that grows costs more than what is put into it
local function save(t)
  local saved, n = t.saved, 0
  for name, before in pairs(saved) do
    local figure = t[name]
    if figure ~= before then
      changes[n + 1], changes[n + 2], n = name, figure, n + 2
      saved[name] = figure
      local sums = derived[name]
      if sums then
        sums.ranks[t.tid], sums.grown = figure, sums.grown + figure - (before or 0)
      end
    end
  end
  if t.seeders + t.leechers == 0 then
    changes[n + 1], changes[n + 2], n = 'empty_since', now, n + 2
  end
  if n > 0 then call('HSET', t.key, unpack(changes, 1, n)) end
  if t.paused ~= 0 then redis.pcall('HINCRBY', t.key, 'paused', t.paused) end
  t.paused = 0
end

-- The rankings by these figures, and the global sums, once for all torrents.
local function save_derived()
  for name, sums in pairs(derived) do
    local scores, n = {}, 0
    for tid, figure in pairs(sums.ranks) do
      scores[n + 1], scores[n + 2], n = figure, tid, n + 2
    end
    if n > 0 then redis.pcall('ZADD', P .. 'i:' .. name, unpack(scores)) end
    if sums.grown ~= 0 then redis.pcall('INCRBY', P .. sums.total, sums.grown) end
    sums.ranks, sums.grown = {}, 0
  end
end

-- Redis doubles a string that has to grow, up to a megabyte. An array that is full gets room for an eighth more before, which
-- is exact: a third of what all arrays take was such a reserve. `slots` are in use, and it is to hold `most` of them.
local LARGE = 524288
local function make_room(key, slots, most, size)
  if slots * size > LARGE then return end
  call('SET', key, call('GETRANGE', key, 0, slots * size - 1) .. string.rep('\0', (most - slots) * size))
end

-- Puts an endpoint at the end of the array `kind .. family`; the answer is its slot. It is nobody's before save(): when this fails,
-- nothing has changed. The ids go first: how long they are then says whether there may have been no room.
local function enter(t, kind, family, endpoint, pid)
  local name, slot, size = kind .. family, t[kind .. family], #endpoint
  local key = t.arrays .. name
  if call('SETRANGE', key .. 'i', slot * 20, pid) == slot * 20 + 20 and slot > 0 and call('STRLEN', key) <= slot * size then
    local most = slot + math.max(4, math.floor(slot / 8))
    make_room(key, slot, most, size)
    make_room(key .. 'i', slot + 1, most, 20)
  end
  call('SETRANGE', key, slot * size, endpoint)
  t[name] = slot + 1
  return slot
end

-- Redis cannot cut a string, so what follows the last slot is slack; give it back now and then. Cutting at
-- every exit would cost O(swarm).
local function shrink(key, n, size)
  if n == 0 then
    call('UNLINK', key, key .. 'i')
  elseif n % 64 == 0 and call('STRLEN', key) > (2 * n + 128) * size then
    call('SET', key, call('GETRANGE', key, 0, n * size - 1))
    call('SET', key .. 'i', call('GETRANGE', key .. 'i', 0, n * 20 - 1))
  end
end

-- The ids in two slots of an array; of slots close together one look gets both.
local NEAR = 100
local function ids_at(ids, slot, last)
  if last - slot > NEAR then
    return call('GETRANGE', ids, slot * 20, slot * 20 + 19), call('GETRANGE', ids, last * 20, last * 20 + 19)
  end
  local both = call('GETRANGE', ids, slot * 20, last * 20 + 19)
  if #both < (last - slot + 1) * 20 then return end
  return string.sub(both, 1, 20), string.sub(both, -20)
end

-- Takes a slot out by moving the last one into it. A slot that is not the peer's own is left alone: the
-- recount of the sweep repairs that swarm.
local function exit(t, kind, family, slot, pid)
  local name, size = kind .. family, family == '4' and 6 or 18
  local key, last = t.arrays .. name, t[name] - 1
  if last < 0 or slot > last then return end
  local own, moved = ids_at(key .. 'i', slot, last)
  if own ~= pid then return end
  if slot < last then
    call('SETRANGE', key, slot * size, call('GETRANGE', key, last * size, last * size + size - 1))
    call('SETRANGE', key .. 'i', slot * 20, moved)
    call('HSET', P .. 'p:' .. t.tid .. ':' .. hex(moved), 'n' .. family, slot)
  end
  t[name] = last
  shrink(key, last, size)
end

local function count(t, kind, paused, by)
  if kind == 's' then t.seeders = math.max(0, t.seeders + by) else t.leechers = math.max(0, t.leechers + by) end
  if paused then t.paused = t.paused + by end
end

local function kind_of(left, paused)
  return left == '0' and paused ~= '1' and 's' or 'l'
end

-- A peer leaves the swarm and everything that says it is in one but its own hash; `n4` and `n6` are its slots. The arrays come first:
-- one that is somebody else's key fails before anything has changed.
local function depart(t, pid, pidx, left, paused, n4, n6)
  local kind = kind_of(left, paused)
  if n4 then exit(t, kind, '4', tonumber(n4), pid) end
  if n6 then exit(t, kind, '6', tonumber(n6), pid) end
  if call('SREM', P .. 'tpeers:' .. t.ih, pidx) == 1 then count(t, kind, paused == '1', -1) end
  redis.pcall('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
end

-- What stays of a peer that is in no swarm, where peers are remembered.
local function remember(key)
  call('HSET', key, 'active', '0')
  call('HDEL', key, 'n4', 'n6', 'endpoints')
  call('EXPIRE', key, memory)
end

-- Torrents by the first 13 digits of their info hash, as a number: as many as a score holds exactly.
local function list_hash(ih, tid)
  redis.pcall('ZADD', P .. 'i:info_hash', decimal(tonumber(string.sub(ih, 1, 13), 16)), tid)
end

-- Takes the torrent's id out of the rankings and forgets the way back and its history, unless the id is another torrent's by now.
local function release_id(t)
  local owner = call('GET', P .. 'torrent_id:' .. t.tid)
  if owner and owner ~= t.ih then return end
  call('UNLINK', P .. 'torrent_id:' .. t.tid, P .. 'history:' .. t.tid)
  derived.seeders.ranks[t.tid], derived.leechers.ranks[t.tid] = nil, nil
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do
    call('ZREM', P .. 'i:' .. index, t.tid)
  end
  redis.pcall('ZREM', P .. 'i:info_hash', t.tid)
end
