-- torrent_save.lua: writes the counts of a torrent. After torrent.lua and `now`.

-- The new scores in `i:seeders` and `i:leechers`, and the changes of the two global sums. save_rankings() writes them.
local rankings = {
  seeders = { change = 0, scores = {} },
  leechers = { change = 0, scores = {} },
}

-- `i:empty` lists empty torrents that registered themselves, by when they became empty: the first one is deleted when
-- there are too many torrents. A disabled or pending torrent is not listed: it would come back
-- enabled.
local function list_empty(t)
  local v = call('HMGET', t.key, 'auto', 'enabled')
  if v[1] == '1' and v[2] ~= '0' and v[2] ~= 'pending' then redis.pcall('ZADD', P .. 'i:empty', now, t.tid) end
end

-- Writes the counts of `t` that have changed. It must not fail, as one torrent would fail a batch that is applied
-- already. Keys of a wrong type are therefore left as they are; the sweep repairs them.
local changed_fields = {} -- reused by each call: a new table that grows is slower
local function save_torrent(t)
  local saved, n = t.saved, 0
  for name, before in pairs(saved) do
    local value = t[name]
    if value ~= before then
      changed_fields[n + 1], changed_fields[n + 2], n = name, value, n + 2
      saved[name] = value
      local ranking = rankings[name]
      if ranking then
        ranking.scores[t.tid], ranking.change = value, ranking.change + value - (before or 0)
      end
    end
  end
  if t.seeders + t.leechers == 0 then
    changed_fields[n + 1], changed_fields[n + 2], n = 'empty_since', now, n + 2
  end
  if n > 0 then call('HSET', t.key, unpack(changed_fields, 1, n)) end
  if t.seeders + t.leechers == 0 then list_empty(t) end
  if t.paused ~= 0 then redis.pcall('HINCRBY', t.key, 'paused', t.paused) end
  t.paused = 0
end

-- Writes the two rankings and the global sums, once for all torrents of the call.
local function save_rankings()
  for name, ranking in pairs(rankings) do
    local scores, n = {}, 0
    for tid, score in pairs(ranking.scores) do
      scores[n + 1], scores[n + 2], n = score, tid, n + 2
    end
    if n > 0 then redis.pcall('ZADD', P .. 'i:' .. name, unpack(scores)) end
    if ranking.change ~= 0 then redis.pcall('INCRBY', P .. 'stats:' .. name, ranking.change) end
    ranking.scores, ranking.change = {}, 0
  end
end
