#!lua
-- sight.lua: counts who was seen where, each address once in 30 days: modes exact and hashed. What is counted and the
-- marker that says so are written in one go, so that a batch may be sent again when its answer was lost.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] its month (UTC, YYYY-MM)   ARGV[3] when keys of that month expire (epoch s)
-- ARGV[4]   most figures that may wait in the outbox (0: nobody wants them)   ARGV[5] '1': those of torrents too
-- ARGV[6..] one sighting each, at most 64, packed (struct, big-endian): info hash (c40, hex) and, with a length before
--   each (B): who, country, city and postcode as the metrics name them, empty when unknown
-- Answer    { addresses new to a torrent, keys that could not be written because they are of another type }
local P, outbox_most = KEYS[1], tonumber(ARGV[4])
--@ include outbox.lua
--@ include uniques.lua
local KEEP, KEEP_TEXT = 2592000, '2592000' -- a number costs its formatting in every call

-- All markers are read before anything is written: one call for what else would be one each.
local markers, owners, listed = {}, {}, {}
read_sightings(function(m, user)
  local marker = m.key .. '.' .. user
  if listed[marker] then return end
  local n = #markers + 1
  listed[marker], markers[n], owners[n] = true, marker, m
end)

-- An address counts when there is no marker or the time in it is 30 days ago. A time that lies ahead was written by a clock
-- that went back since: it does not count again, and the marker's own expiry ends it.
local fresh, new = {}, 0
local seen = #markers > 0 and call('MGET', unpack(markers)) or {}
for i, m in ipairs(owners) do
  local at = seen[i] and tonumber(seen[i])
  if not at or now - at >= KEEP then
    m.total, m.month = m.total + 1, m.month + 1
    fresh[#fresh + 1] = i
  end
end
for _, m in ipairs(order) do
  if m.total > 0 then
    if grow(m) then new = new + tell(m) else m.failed = true end
  end
end
for _, i in ipairs(fresh) do
  if not owners[i].failed then call('SETEX', markers[i], KEEP_TEXT, ARGV[1]) end
end
save_boards()
return { new, failed }
