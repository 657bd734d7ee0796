-- swarm.lua: the dense arrays, the counts and the way out of a swarm. A fragment: announce.lua, reap.lua,
-- due.lua, sweep.lua and others include it after `P` (the prefix), `now` and `memory` are set.
--
-- A torrent under work is the table `t` made by load(); its figures are changed in memory by enter(),
-- exit() and leave() and written once, by save() (`paused` is the change of that count). All of it happens inside one script, so nobody sees
-- a state between.

local call = redis.call
local total_seeders, total_leechers = 0, 0

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

-- A count as it is stored; what is none, for somebody else wrote it, is 0 until the sweep counts anew.
local function stored_count(digits)
  return digits and #digits <= 15 and string.find(digits, '^%d+$') and tonumber(digits) or 0
end

-- The torrent's figures, in the table `t` or one of its own.
local function load(ih, t)
  local key = P .. 't:' .. ih
  local v = call('HMGET', key, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 's4', 'l4', 's6', 'l6')
  t = t or {}
  t.ih, t.key, t.arrays, t.tid, t.enabled, t.paused = ih, key, P .. 'swarm:' .. ih .. ':', v[1], v[2], 0
  t.seeders, t.leechers, t.snatches = stored_count(v[3]), stored_count(v[4]), stored_count(v[5])
  t.s4, t.l4, t.s6, t.l6 = tonumber(v[6]) or 0, tonumber(v[7]) or 0, tonumber(v[8]) or 0, tonumber(v[9]) or 0
  t.was_seeders, t.was_leechers = t.seeders, t.leechers
  return t
end

-- Writes the figures of `t` and everything derived from them: rankings here, global sums at the end of the script.
local function save(t)
  call('HSET', t.key, 'seeders', t.seeders, 'leechers', t.leechers, 's4', t.s4, 'l4', t.l4, 's6', t.s6, 'l6', t.l6)
  if t.paused ~= 0 then call('HINCRBY', t.key, 'paused', t.paused) end
  t.paused = 0
  if t.seeders ~= t.was_seeders then
    call('ZADD', P .. 'i:seeders', t.seeders, t.tid)
    total_seeders = total_seeders + t.seeders - t.was_seeders
    t.was_seeders = t.seeders
  end
  if t.leechers ~= t.was_leechers then
    call('ZADD', P .. 'i:leechers', t.leechers, t.tid)
    total_leechers = total_leechers + t.leechers - t.was_leechers
    t.was_leechers = t.leechers
  end
  if t.seeders + t.leechers == 0 then
    call('HSET', t.key, 'empty_since', now)
  end
end

local function save_totals()
  if total_seeders ~= 0 then call('INCRBY', P .. 'stats:seeders', total_seeders) end
  if total_leechers ~= 0 then call('INCRBY', P .. 'stats:leechers', total_leechers) end
end

-- Redis doubles a string that has to grow, up to a megabyte. An array that is full gets room for an eighth more before, which
-- is exact: a third of what all arrays take was such a reserve.
local LARGE = 524288
local function make_room(key, length, size)
  if length == 0 or length > LARGE then return end
  local slots = math.max(4, math.floor(length / size / 8))
  call('SET', key, call('GETRANGE', key, 0, -1) .. string.rep('\0', slots * size))
end

-- Puts an endpoint at the end of the array `kind .. family`; the answer is its slot. `length` is the array's in bytes, where
-- somebody has looked; one that is no longer right does no harm.
local function enter(t, kind, family, endpoint, pid, length)
  local name, slot, size = kind .. family, t[kind .. family], #endpoint
  local key = t.arrays .. name
  length = length or call('STRLEN', key)
  if length <= slot * size then
    make_room(key, length, size)
    make_room(key .. 'i', length / size * 20, 20)
  end
  call('SETRANGE', key, slot * size, endpoint)
  call('SETRANGE', key .. 'i', slot * 20, pid)
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

-- Takes a slot out by moving the last one into it. A slot that is not the peer's own is left alone: the
-- recount of the sweep repairs that swarm.
local function exit(t, kind, family, slot, pid)
  local name, size = kind .. family, family == '4' and 6 or 18
  local key, last = t.arrays .. name, t[name] - 1
  local ids = key .. 'i'
  if last < 0 or slot > last or call('GETRANGE', ids, slot * 20, slot * 20 + 19) ~= pid then
    return
  end
  if slot < last then
    local moved = call('GETRANGE', ids, last * 20, last * 20 + 19)
    call('SETRANGE', key, slot * size, call('GETRANGE', key, last * size, last * size + size - 1))
    call('SETRANGE', ids, slot * 20, moved)
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

-- The peer whose timeout is gone leaves the swarm and everything that says it is in one; `n4` and `n6` are its slots.
local function depart(t, pid, pidx, left, paused, n4, n6)
  local kind, key = kind_of(left, paused), P .. 'p:' .. t.tid .. ':' .. pidx
  if n4 then exit(t, kind, '4', tonumber(n4), pid) end
  if n6 then exit(t, kind, '6', tonumber(n6), pid) end
  call('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
  if call('SREM', P .. 'tpeers:' .. t.ih, pidx) == 1 then count(t, kind, paused == '1', -1) end
  if memory > 0 then
    call('HSET', key, 'active', '0')
    call('HDEL', key, 'n4', 'n6', 'endpoints')
    call('EXPIRE', key, memory)
  else
    call('UNLINK', key)
  end
end

-- The same for one that says so itself.
local function leave(t, pid, pidx, left, paused)
  local suffix = t.tid .. ':' .. pidx
  local slots = call('HMGET', P .. 'p:' .. suffix, 'n4', 'n6')
  call('DEL', P .. 'ptimeout:' .. suffix)
  depart(t, pid, pidx, left, paused, slots[1], slots[2])
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
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do
    call('ZREM', P .. 'i:' .. index, t.tid)
  end
  redis.pcall('ZREM', P .. 'i:info_hash', t.tid)
end
