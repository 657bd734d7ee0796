-- work_known.lua: whether the past of a torrent says enough to judge it. After `P` and `call`; needs `now` (epoch s)
-- and `dry`.
--
-- Scorings add points to `history:<tid>`, but a weak torrent leaves the ranking after a day and then gets none. So a
-- torrent that is not ranked gets a point here when its seeders have changed.
local KNOWN_SINCE, MIN_POINTS, MAX_POINTS, KEPT = 86400, 6, 72, 604800

local function note_seeders(tid, seeders, leechers, snatches)
  local key = P .. 'history:' .. tid
  local last = redis.pcall('LINDEX', key, -1)
  if type(last) == 'table' then return end -- a key of a wrong type
  if not last or string.match(last, '^%d+ (%d+) ') ~= string.format('%d', seeders) then
    call('RPUSH', key, string.format('%.0f %d %d %d 0', now, seeders, leechers, snatches))
    call('LTRIM', key, -MAX_POINTS, -1)
  end
  call('EXPIRE', key, KEPT)
end

-- `past` has the number of points, and the time of the first one.
local function is_known(tid, past, seeders, leechers, snatches)
  if redis.pcall('ZSCORE', P .. 'i:score', tid) then
    if past.points < MIN_POINTS then return false end
  elseif not dry then
    note_seeders(tid, seeders, leechers, snatches)
  end
  return past.points > 0 and past.first <= now - KNOWN_SINCE
end
