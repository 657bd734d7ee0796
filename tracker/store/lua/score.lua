#!lua
-- score.lua: ends scorings: each by whoever still holds the torrent, and then wholly.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] a torrent counts as scored once in so long (s)
-- ARGV[3..] seven for each: id, info hash, token, its new score ('drop': it leaves the ranking; 'back': it was not scored
--   and is free again), how many of its `new` and how many peers the scoring has taken into account, how many peers
--   another tracker knows ('' when none was asked or answered)
-- Answer    { how many count as scored, ids whose result was void: the lease was lost, or the torrent is gone }
local P, call = KEYS[1], redis.call
local now, once_in = tonumber(ARGV[1]), tonumber(ARGV[2])
local scores, times, leases = P .. 'i:score', P .. 'i:processed', P .. 'leases:torrents'
--@ include lease.lua

local counted, void = 0, {}
call('ZCARD', times)
call('ZCARD', leases)

-- What was counted since the torrent was taken stays for the next scoring.
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

local function finish(tid, ih, token, score, taken_new, taken_peers, elsewhere)
  if not holds(leases, tid, token) then return false end
  local key = P .. 't:' .. ih
  local t = call('HMGET', key, 'tid', 'new', 'scored_at', 'seeders', 'leechers')
  local there = call('GET', P .. 'torrent_id:' .. tid) == ih and t[1] == tid and call('ZSCORE', scores, tid)
  release(leases, tid)
  if score == 'back' then return true end
  -- Who joins a torrent that has left the ranking brings it back at 1; so does who joined while it was found too weak.
  if score == 'drop' and (tonumber(t[4] or '') or 0) + (tonumber(t[5] or '') or 0) > taken_peers then score = '1' end
  if there then
    write(tid, key, score, tonumber(t[2] or '') or 0, taken_new, tonumber(t[3] or '') or 0, elsewhere)
  end
  return there
end

for i = 3, #ARGV, 7 do
  local ok, done = pcall(finish, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4]),
    tonumber(ARGV[i + 5]), ARGV[i + 6])
  if not ok or not done then void[#void + 1] = ARGV[i] end
end
return { counted, void }
