#!lua
-- score.lua: stores the results of scorings. Each is stored completely, and only if its worker still has the lease.
-- ARGV[1]   now (epoch s)   ARGV[2] how often a torrent counts as scored (s)
-- ARGV[3]   points kept in a torrent's history (0: no history)
-- ARGV[4..] seven for each torrent: id, info hash, token, new score ('drop': it leaves the ranking; 'back': it was not
--   scored, only its lease ends), the `new` and the peers that the scoring used, peers that another tracker reported
--   ('' if none was asked or replied)
-- Answer    { how many count as scored, ids whose result is void: the lease was lost, or the torrent is deleted }
local P, call = KEYS[1], redis.call
local now, once_in, points = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local scores, times, leases = P .. 'i:score', P .. 'i:processed', P .. 'leases:torrents'
--@ include lib/leases.lua

local KEEP_AFTERWARDS = 604800 -- how long a history outlives its torrent's place in the ranking (s)
local counted, void = 0, {}
call('ZCARD', times)
call('ZCARD', leases)

-- What was counted since the torrent was taken remains for the next scoring.
local function write(tid, key, score, new, taken_new, counted_at, elsewhere)
  if score == 'drop' then
    call('ZREM', scores, tid)
    call('ZREM', times, tid)
  else
    call('ZADD', scores, 'XX', score, tid)
    call('ZADD', times, now, tid)
  end
  local left = string.format('%.0f', math.max(0, new - taken_new))
  if now - counted_at >= once_in or counted_at > now + 60 then
    call('HSET', key, 'scored_at', now, 'new', left)
    counted = counted + 1
  elseif taken_new > 0 then
    call('HSET', key, 'new', left)
  end
  if elsewhere ~= '' then call('HSET', key, 'elsewhere', elsewhere) end
end

-- Adds a point to the torrent's history. A history of a wrong type must not prevent the scoring.
local function add_point(tid, seeders, leechers, snatches, score)
  local history, dropped = P .. 'history:' .. tid, score == 'drop'
  if points == 0 then return call('UNLINK', history) end
  local point = string.format('%d %.0f %.0f %.0f %.3g', now, seeders, leechers, snatches,
    dropped and 0 or tonumber(score))
  local length = redis.pcall('RPUSH', history, point)
  if type(length) == 'table' then return end
  if length > points then call('LTRIM', history, -points, -1) end
  if dropped then call('EXPIRE', history, KEEP_AFTERWARDS) else call('PERSIST', history) end
end

local function finish(tid, ih, token, score, taken_new, taken_peers, elsewhere)
  if not has_lease(leases, tid, token) then return false end
  local key = P .. 't:' .. ih
  local t = call('HMGET', key, 'tid', 'new', 'scored_at', 'seeders', 'leechers', 'snatches')
  local exists = call('GET', P .. 'torrent_id:' .. tid) == ih and t[1] == tid and call('ZSCORE', scores, tid)
  release_lease(leases, tid)
  if score == 'back' then return true end
  -- A join brings a torrent that left the ranking back at 1; so does a join while it was scored too low.
  local seeders, leechers = tonumber(t[4] or '') or 0, tonumber(t[5] or '') or 0
  if score == 'drop' and seeders + leechers > taken_peers then score = '1' end
  if exists then
    write(tid, key, score, tonumber(t[2] or '') or 0, taken_new, tonumber(t[3] or '') or 0, elsewhere)
    add_point(tid, seeders, leechers, tonumber(t[6] or '') or 0, score)
  end
  return exists
end

for i = 4, #ARGV, 7 do
  local ok, done = pcall(finish, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4]),
    tonumber(ARGV[i + 5]), ARGV[i + 6])
  if not ok or not done then void[#void + 1] = ARGV[i] end
end
return { counted, void }
