-- torrent.lua: reads, writes and ranks the counts of a torrent. What writes needs `now`.
--
-- Scripts change the counts of a loaded torrent `t` in memory. save_torrent() writes them once; save_rankings() then
-- writes what follows from the counts of all torrents. A script is atomic, so no other client sees a state in between.

--@ include lib/counts.lua

-- Fills `t` with the torrent, and returns what it has read: more fields from the fifth value on. What save_torrent()
-- compares stands at 1 to 3 of the table; `t.paused` is the change of the paused count, `t.moves` how many peers came,
-- left or changed.
local function read_torrent(t, ih, ...)
  local key = P .. 't:' .. ih
  local v = call('HMGET', key, 'tid', 'seeders', 'leechers', 'arrays', ...)
  local seeders, leechers, n = count_of[v[2]], count_of[v[3]], arrays_of[v[4]] or read_arrays(v[4])
  t[1], t[2], t[3] = seeders, leechers, v[4]
  t.ih, t.key, t.arrays, t.tid, t.paused, t.moves = ih, key, P .. 'swarm:' .. ih .. ':', v[1], 0, 0
  t.seeders, t.leechers, t.s4, t.l4, t.s6, t.l6, t.sw, t.lw, t.crowded =
    seeders or 0, leechers or 0, n[1], n[2], n[3], n[4], n[5], n[6], n[7]
  return v
end

-- luacheck: push ignore 113 211 (some scripts only read)
-- The torrent, then the values of more fields.
local function load_torrent(ih, ...)
  local t = {}
  return t, unpack(read_torrent(t, ih, ...), 5)
end

-- The new scores in `i:seeders` and `i:leechers`, and the changes of the two global sums. save_rankings() writes them.
-- `moves`, by torrent id: at least as many as peers came, left or changed.
local rankings = { { name = 'seeders', change = 0, scores = {} }, { name = 'leechers', change = 0, scores = {} },
  moves = {} }

-- Writes the counts of `t` that have changed. It must not fail, as one torrent would fail a batch that is applied
-- already. Keys of a wrong type are therefore left as they are; the sweep repairs them.
local save_torrent
-- Writes the two rankings and the global sums, once for all torrents of the call.
local save_rankings
-- Whole numbers as text. Small ones are kept: to write a number costs as much as a short command.
local text_of = setmetatable({}, { __index = function(known, number)
  local text = string.format('%.0f', number)
  if number >= 0 and number < 1000 then known[number] = text end
  return text
end })
do
-- `i:empty` lists empty torrents that registered themselves, by when they became empty: the first one is deleted when
-- there are too many torrents. A disabled or pending torrent is not listed: it would come back enabled.
local function list_empty(t)
  local v = call('HMGET', t.key, 'auto', 'enabled')
  if v[1] == '1' and v[2] ~= '0' and v[2] ~= 'pending' then redis.pcall('ZADD', P .. 'i:empty', now, t.tid) end
end

local changes = {} -- fields and values; reused by each call: a new table that grows is slower
local function note_score(t, i, value)
  local ranking = rankings[i]
  ranking.scores[t.tid], ranking.change = value, ranking.change + value - (t[i] or 0)
end

-- As read_arrays() reads it.
local function arrays_text(t)
  local text = text_of
  local own = text[t.s4] .. ' ' .. text[t.l4]
  if t.s6 + t.l6 + t.sw + t.lw + t.crowded == 0 then return own end
  return own .. ' ' .. text[t.s6] .. ' ' .. text[t.l6] .. ' ' .. text[t.sw] .. ' ' .. text[t.lw] .. ' '
    .. text[t.crowded]
end

function save_torrent(t)
  local seeders, leechers, n = t.seeders, t.leechers, 0
  if seeders ~= t[1] then
    note_score(t, 1, seeders)
    t[1], changes[1], changes[2], n = seeders, 'seeders', seeders, 2
  end
  if leechers ~= t[2] then
    note_score(t, 2, leechers)
    t[2], changes[n + 1], changes[n + 2], n = leechers, 'leechers', leechers, n + 2
  end
  local arrays = arrays_text(t)
  if arrays ~= t[3] then t[3], changes[n + 1], changes[n + 2], n = arrays, 'arrays', arrays, n + 2 end
  local empty = seeders + leechers == 0
  if empty then changes[n + 1], changes[n + 2], n = 'empty_since', now, n + 2 end
  if n == 4 then -- nearly always: a list of any length costs more
    call('HSET', t.key, changes[1], changes[2], changes[3], changes[4])
  elseif n > 0 then
    call('HSET', t.key, unpack(changes, 1, n))
  end
  if empty then list_empty(t) end
  if t.paused ~= 0 then redis.pcall('HINCRBY', t.key, 'paused', t.paused) end
  rankings.moves[t.tid] = (rankings.moves[t.tid] or 0) + t.moves + 1
  t.paused, t.moves = 0, 0
end

-- The sweep visits a large swarm in several calls. `sweeping` holds the id of its torrent, and how much has changed
-- there since: then the counts of the sweep may be off by as much.
local function note_moves()
  local tid, known = string.match(call('GET', P .. 'sweeping') or '', '^(%d+) (%d+)$')
  local own = rankings.moves[tid]
  if own then call('SET', P .. 'sweeping', tid .. ' ' .. string.format('%.0f', known + own), 'KEEPTTL') end
end

function save_rankings()
  if next(rankings.moves) then
    pcall(note_moves)
    rankings.moves = {}
  end
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
end

local function write_rankings(t, tid)
  call('ZADD', P .. 'i:seeders', t.seeders, tid)
  call('ZADD', P .. 'i:leechers', t.leechers, tid)
  call('ZADD', P .. 'i:snatches', count_of[call('HGET', t.key, 'snatches')] or 0, tid)
end

-- Torrents that were registered or joined, the keys of `tids`, are scored from now on, if they are not yet. `all`: also
-- those that are in the first ranking already enter the second one.
local function add_to_scoring(tids, all)
  local entries, n = {}, 0
  for tid in pairs(tids) do entries[n + 1], entries[n + 2], n = 1, tid, n + 2 end
  if n == 0 or call('ZADD', P .. 'i:score', 'NX', unpack(entries)) == 0 and not all then return end
  for i = 1, n, 2 do entries[i] = now end
  call('ZADD', P .. 'i:processed', 'NX', unpack(entries))
end
-- luacheck: pop
