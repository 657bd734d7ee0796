#!lua
-- count_unique.lua: counts unique users, each address once in 30 days (modes exact and hashed). The counts and the
-- markers of counted addresses are written together, so a batch may be sent again when its answer was lost.
-- ARGV[1]   now (epoch s)   ARGV[2] its month (UTC, YYYY-MM)   ARGV[3] when keys of that month expire (epoch s)
-- ARGV[4]   max statistics in the outbox (0: no receiver)   ARGV[5] '1': torrents are exported too
-- ARGV[6]   '1': cities and postcodes are exported too, not only countries
-- ARGV[7]   '1': the store is nearly full, so nothing is written and new addresses are not counted
-- ARGV[8]   the scopes of places in countries, with a space between them
-- ARGV[9..] one event each, at most 64, packed (struct, big-endian): info hash (c40, hex) and, with a length before
--   each (B): user, country, and a place of each scope as the metrics name them, empty when unknown
-- Answer    { addresses new to a torrent, keys of a wrong type, events that were not counted because the store is
--   nearly full }
local P, call, max_waiting = KEYS[1], redis.call, tonumber(ARGV[4])
local nearly_full = ARGV[7] == '1'
--@ include lib/unique_users.lua
local MARKER_SECONDS, MARKER_TEXT = 2592000, '2592000' -- as text too: each call would format a number

-- One command reads all markers before the first write.
local markers, owners, listed, events = {}, {}, {}, {}
read_events(function(m, user, i)
  local marker = m.key .. '.' .. user
  if listed[marker] then return end
  local n = #markers + 1
  listed[marker], markers[n], owners[n], events[n] = true, marker, m, i
end)

-- An address counts when it has no marker, or a marker older than 30 days. A marker of the future was written before
-- the clock was set back: the address does not count again, and the marker expires.
local fresh, new, skipped, last = {}, 0, 0, 0
local seen = #markers > 0 and call('MGET', unpack(markers)) or {}
for i, m in ipairs(owners) do
  local at = seen[i] and tonumber(seen[i])
  if not at or now - at >= MARKER_SECONDS then
    if nearly_full then -- metrics of one event follow each other
      if events[i] ~= last then skipped, last = skipped + 1, events[i] end
    else
      m.total, m.month = m.total + 1, m.month + 1
      fresh[#fresh + 1] = i
    end
  end
end
for _, m in ipairs(ordered) do
  if m.total > 0 then
    if grow_metric(m) then new = new + note_growth(m) else m.failed = true end
  end
end
for _, i in ipairs(fresh) do
  if not owners[i].failed then call('SETEX', markers[i], MARKER_TEXT, ARGV[1]) end
end
save_boards()
return { new, failed, skipped }
