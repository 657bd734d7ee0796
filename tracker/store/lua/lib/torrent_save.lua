-- torrent_save.lua: writes the counts of a torrent. After torrent.lua and `now`.

-- The new scores in `i:seeders` and `i:leechers`, and the changes of the two global sums. save_rankings() writes them.
local RANKED = { 'seeders', 'leechers' }
local rankings = { { change = 0, scores = {} }, { change = 0, scores = {} } }

-- `i:empty` lists empty torrents that registered themselves, by when they became empty: the first one is deleted when
-- there are too many torrents. A disabled or pending torrent is not listed: it would come back
-- enabled.
local function list_empty(t)
  local v = call('HMGET', t.key, 'auto', 'enabled')
  if v[1] == '1' and v[2] ~= '0' and v[2] ~= 'pending' then redis.pcall('ZADD', P .. 'i:empty', now, t.tid) end
end

-- Writes the counts of `t` that have changed. It must not fail, as one torrent would fail a batch that is applied
-- already. Keys of a wrong type are therefore left as they are; the sweep repairs them.
local changes = {} -- fields and values; reused by each call: a new table that grows is slower
local function note_change(t, i, name, n)
  local value = t[name]
  changes[n + 1], changes[n + 2] = name, value
  if i <= 2 then
    local ranking = rankings[i]
    ranking.scores[t.tid], ranking.change = value, ranking.change + value - (t[i] or 0)
  end
  t[i] = value
  return n + 2
end

local function save_torrent(t)
  local n, empty = 0, t.seeders + t.leechers == 0
  if t.seeders ~= t[1] then n = note_change(t, 1, 'seeders', n) end
  if t.leechers ~= t[2] then n = note_change(t, 2, 'leechers', n) end
  if t.s4 ~= t[3] then n = note_change(t, 3, 's4', n) end
  if t.l4 ~= t[4] then n = note_change(t, 4, 'l4', n) end
  if t.s6 ~= t[5] then n = note_change(t, 5, 's6', n) end
  if t.l6 ~= t[6] then n = note_change(t, 6, 'l6', n) end
  if t.crowded ~= t[7] then n = note_change(t, 7, 'crowded', n) end
  if t.announces ~= t[8] then n = note_change(t, 8, 'announces', n) end
  if empty then changes[n + 1], changes[n + 2], n = 'empty_since', now, n + 2 end
  if n > 0 then call('HSET', t.key, unpack(changes, 1, n)) end
  if empty then list_empty(t) end
  if t.paused ~= 0 then redis.pcall('HINCRBY', t.key, 'paused', t.paused) end
  t.paused = 0
end

-- Writes the two rankings and the global sums, once for all torrents of the call.
local function save_rankings()
  for i, ranking in ipairs(rankings) do
    local scores, n = {}, 0
    for tid, score in pairs(ranking.scores) do
      scores[n + 1], scores[n + 2], n = score, tid, n + 2
    end
    if n > 0 then redis.pcall('ZADD', P .. 'i:' .. RANKED[i], unpack(scores)) end
    if ranking.change ~= 0 then redis.pcall('INCRBY', P .. 'stats:' .. RANKED[i], ranking.change) end
    ranking.scores, ranking.change = {}, 0
  end
end
