-- torrent.lua: reads, writes and ranks the counts of a torrent. After `P` (the prefix) and `call`; what writes needs
-- `now`.
--
-- Scripts change the counts of a loaded torrent `t` in memory. save_torrent() writes them once; save_rankings() then
-- writes what follows from the counts of all torrents. A script is atomic, so no other client sees a state in between.

-- Stored counts by their text; false for text that is not a number, because another program wrote it. It counts as 0
-- until the sweep recounts the swarm. Short ones, nearly all, are kept: a look is cheaper than reading a number.
local count_of = setmetatable({ [false] = false }, { __index = function(known, digits)
  local number = tonumber(digits or '')
  number = number and number >= 0 and number < 1e15 and number % 1 == 0 and number or false
  if digits and #digits <= 3 then known[digits] = number end
  return number
end })

-- The torrent, then the values of more fields. The counts as stored stand at 1 to 8 of the table, in the order
-- of save_torrent(); `t.paused` is the change of the paused count. A table is built with all fields at once:
-- growing it field by field is slower.
local function load_torrent(ih, ...)
  local key = P .. 't:' .. ih
  local v = call('HMGET', key, 'tid', 'seeders', 'leechers', 's4', 'l4', 's6', 'l6', 'crowded', 'announces', ...)
  local known = count_of
  local seeders, leechers, crowded, announces = known[v[2]], known[v[3]], known[v[8]], not v[9] and 0 or known[v[9]]
  local s4, l4, s6, l6 = known[v[4]] or 0, known[v[5]] or 0, known[v[6]] or 0, known[v[7]] or 0
  return {
    seeders, leechers, s4, l4, s6, l6, crowded, announces,
    ih = ih, key = key, arrays = P .. 'swarm:' .. ih .. ':', tid = v[1], paused = 0,
    seeders = seeders or 0, leechers = leechers or 0, s4 = s4, l4 = l4, s6 = s6, l6 = l6,
    crowded = crowded, announces = announces,
  }, unpack(v, 10)
end

-- luacheck: push ignore 113 211 (some scripts only read)
-- The new scores in `i:seeders` and `i:leechers`, and the changes of the two global sums. save_rankings() writes them.
local rankings = { { name = 'seeders', change = 0, scores = {} }, { name = 'leechers', change = 0, scores = {} } }

-- `i:empty` lists empty torrents that registered themselves, by when they became empty: the first one is deleted when
-- there are too many torrents. A disabled or pending torrent is not listed: it would come back
-- enabled.
local function list_empty(t)
  local v = call('HMGET', t.key, 'auto', 'enabled')
  if v[1] == '1' and v[2] ~= '0' and v[2] ~= 'pending' then redis.pcall('ZADD', P .. 'i:empty', now, t.tid) end
end

-- Writes the counts of `t` that have changed. It must not fail, as one torrent would fail a batch that is applied
-- already. Keys of a wrong type are therefore left as they are; the sweep repairs them.
local save_torrent
do
local changes = {} -- fields and values; reused by each call: a new table that grows is slower
local function note_change(t, i, name, value, n)
  t[i], changes[n + 1], changes[n + 2] = value, name, value
  return n + 2
end

local function note_score(t, i, value)
  local ranking = rankings[i]
  ranking.scores[t.tid], ranking.change = value, ranking.change + value - (t[i] or 0)
end

function save_torrent(t)
  local seeders, leechers, n = t.seeders, t.leechers, 0
  if seeders ~= t[1] then
    note_score(t, 1, seeders)
    n = note_change(t, 1, 'seeders', seeders, n)
  end
  if leechers ~= t[2] then
    note_score(t, 2, leechers)
    n = note_change(t, 2, 'leechers', leechers, n)
  end
  if t.s4 ~= t[3] then n = note_change(t, 3, 's4', t.s4, n) end
  if t.l4 ~= t[4] then n = note_change(t, 4, 'l4', t.l4, n) end
  if t.s6 ~= t[5] then n = note_change(t, 5, 's6', t.s6, n) end
  if t.l6 ~= t[6] then n = note_change(t, 6, 'l6', t.l6, n) end
  if t.crowded ~= t[7] then n = note_change(t, 7, 'crowded', t.crowded, n) end
  if t.announces ~= t[8] then n = note_change(t, 8, 'announces', t.announces, n) end
  local empty = seeders + leechers == 0
  if empty then changes[n + 1], changes[n + 2], n = 'empty_since', now, n + 2 end
  if n > 0 then call('HSET', t.key, unpack(changes, 1, n)) end
  if empty then list_empty(t) end
  if t.paused ~= 0 then redis.pcall('HINCRBY', t.key, 'paused', t.paused) end
  t.paused = 0
end
end

-- Writes the two rankings and the global sums, once for all torrents of the call.
local function save_rankings()
  for _, ranking in ipairs(rankings) do
    local scores, n = {}, 0
    for tid, score in pairs(ranking.scores) do
      scores[n + 1], scores[n + 2], n = score, tid, n + 2
    end
    if n > 0 then redis.pcall('ZADD', P .. 'i:' .. ranking.name, unpack(scores)) end
    if ranking.change ~= 0 then redis.pcall('INCRBY', P .. 'stats:' .. ranking.name, ranking.change) end
    ranking.scores, ranking.change = {}, 0
  end
end

local function load_snatches(t)
  return count_of[call('HGET', t.key, 'snatches')] or 0
end

local function write_rankings(t, tid)
  call('ZADD', P .. 'i:seeders', t.seeders, tid)
  call('ZADD', P .. 'i:leechers', t.leechers, tid)
  call('ZADD', P .. 'i:snatches', load_snatches(t), tid)
end

-- Torrents that were registered or joined are scored from now on, if they are not yet.
local function add_to_scoring(tids)
  if #tids == 0 then return end
  local scores, times = {}, {}
  for i, tid in ipairs(tids) do
    scores[2 * i - 1], scores[2 * i] = 1, tid
    times[2 * i - 1], times[2 * i] = now, tid
  end
  call('ZADD', P .. 'i:score', 'NX', unpack(scores))
  call('ZADD', P .. 'i:processed', 'NX', unpack(times))
end
-- luacheck: pop
