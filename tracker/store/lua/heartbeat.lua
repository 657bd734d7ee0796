#!lua flags=allow-oom
-- heartbeat.lua: says that a tracker is here, and notices when none was: then nobody could announce.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] silence that counts as an outage (s)
-- Answer    end of the last outage (epoch s), 0 for none
local P, now = KEYS[1], tonumber(ARGV[1])
local last = tonumber(redis.call('GET', P .. 'heartbeat') or '')
if last and now - last > tonumber(ARGV[2]) then
  redis.call('SET', P .. 'gap', string.format('%.0f %.0f', last, now))
end
if not last or now > last then redis.call('SET', P .. 'heartbeat', string.format('%.0f', now)) end
--@ include gap.lua
return gap_until
