#!lua
-- take.lua: takes torrents to be scored: half of them those that wait longest, the others by score times waiting time.
-- ARGV[1]   now (epoch s)   ARGV[2] interval between two scorings of a torrent (s)   ARGV[3] length of the lease (s)
-- ARGV[4]   how many   ARGV[5] how many of them by time waited   ARGV[6] a random integer
-- ARGV[7]   a torrent id to take only that one, whether it is due or not; else ''
-- Answer    one list for each: { id, token, info hash, score, seeders, leechers, new, seconds waited, peers elsewhere
--   }; for one torrent that is leased, the seconds until its lease ends
--
-- A torrent is due an interval after its last scoring, so the due ones are the first in `i:processed`. An index by
-- score times waiting time would change every second. Instead a few due torrents are drawn at random, and the best of
-- them is taken. The draw must be random: if the best always had this half, the other half would serve the others and
-- cancel the advantage of a high score.
local P, call = KEYS[1], redis.call
local now, interval, lease_for = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted, by_waiting = tonumber(ARGV[4]), tonumber(ARGV[5])
local scores, times, leases = P .. 'i:score', P .. 'i:processed', P .. 'leases:torrents'
--@ include lib/leases.lua

local CANDIDATES, MAX_REPAIRED, MAX_PAGES, MAX_CLOCK_SKEW = 5, 100, 20, 3600
local taken, chosen = {}, {}

-- A key of a wrong type fails here, before the first write.
local ranked, timed = call('ZCARD', scores), call('ZCARD', times)
call('ZCARD', leases)
call('HLEN', leases .. ':tokens')
call('GET', P .. 'lease')

-- Repairs leases of dead workers, leases and times of a clock that was ahead, and scores that have no time.
local ended = call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, MAX_REPAIRED)
for _, ids in ipairs({ ended, leases_beyond(leases, now + lease_for + MAX_CLOCK_SKEW, MAX_REPAIRED) }) do
  for _, tid in ipairs(ids) do release_lease(leases, tid) end
end
for _, tid in ipairs(call('ZRANGEBYSCORE', times, now + 60, '+inf', 'LIMIT', 0, MAX_REPAIRED)) do
  call('ZADD', times, now, tid)
end
if ranked > timed then
  for _, tid in ipairs(call('ZRANDMEMBER', scores, MAX_REPAIRED)) do call('ZADD', times, 'NX', now, tid) end
end

-- A torrent that cannot be taken must not delay the others: it leaves the ranking until its next join.
local function take(tid)
  chosen[tid] = true
  local score, time = call('ZSCORE', scores, tid), call('ZSCORE', times, tid)
  local ih = redis.pcall('GET', P .. 'torrent_id:' .. tid)
  local t = type(ih) == 'string' and #ih == 40 and not string.find(ih, '[^0-9a-f]')
    and redis.pcall('HMGET', P .. 't:' .. ih, 'tid', 'seeders', 'leechers', 'new', 'elsewhere')
  if not score or not t or t.err or t[1] ~= tid then
    for _, ranking in ipairs({ scores, times }) do call('ZREM', ranking, tid) end
    return
  end
  local token = take_lease(leases, tid, now + lease_for)
  taken[#taken + 1] = { tid, token, ih, score, t[2] or '0', t[3] or '0', t[4] or '0', now - (tonumber(time) or now),
    t[5] or '0' }
end

-- For each id whether it has no lease.
local function are_free(tids)
  local deadlines = call('ZMSCORE', leases, unpack(tids))
  for i, deadline in ipairs(deadlines) do deadlines[i] = not (deadline and tonumber(deadline) > now) end
  return deadlines
end

-- Draws torrents that are due by their position in the ranking by time, which changes when a torrent leaves it, and
-- takes the best of them.
local function take_by_score(due_count, turns)
  local tids, waits, seen = {}, {}, {}
  for _ = 1, turns * CANDIDATES do
    local place = math.random(0, due_count - 1)
    if not seen[place] then
      seen[place] = true
      local found = call('ZRANGE', times, place, place, 'WITHSCORES')
      local waited = now - (tonumber(found[2]) or now)
      if waited >= interval and not chosen[found[1]] then
        tids[#tids + 1], waits[#waits + 1] = found[1], waited
      end
    end
  end
  if #tids == 0 then return end
  local score_of, is_free, candidates = call('ZMSCORE', scores, unpack(tids)), are_free(tids), {}
  for i, tid in ipairs(tids) do
    if is_free[i] then candidates[#candidates + 1] = { tid, (tonumber(score_of[i]) or 0) * waits[i] } end
  end
  table.sort(candidates, function(a, b) return a[2] > b[2] end)
  for i = 1, math.min(turns, #candidates) do take(candidates[i][1]) end
end

if ARGV[7] ~= '' then
  if not call('ZSCORE', scores, ARGV[7]) then return taken end
  if not are_free({ ARGV[7] })[1] then return math.ceil(tonumber(call('ZSCORE', leases, ARGV[7])) - now) end
  take(ARGV[7])
  return taken
end

local due = now - interval
local due_count = call('ZCOUNT', times, '-inf', due)
if due_count == 0 then return taken end
local size = math.min(1000, wanted + call('ZCOUNT', leases, now + 1, '+inf'))

-- Takes those that wait longest, until so many are taken.
local function take_waiting(till)
  local offset = 0
  while #taken < till and offset < MAX_PAGES * size do
    local page = call('ZRANGEBYSCORE', times, '-inf', due, 'LIMIT', offset, size)
    if #page == 0 then return end
    for i, is_free in ipairs(are_free(page)) do
      if #taken < till and is_free and not chosen[page[i]] then take(page[i]) end
    end
    offset = offset + #page
  end
end

math.randomseed(tonumber(ARGV[6]))
take_waiting(due_count > wanted and by_waiting or wanted)
take_by_score(due_count, wanted - #taken)
take_waiting(wanted)
return taken
