#!lua flags=allow-oom
-- heartbeat.lua: says that a tracker is here, and writes down when none was.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] what the store's clock should say (epoch s; '' unknown)
-- Answer    { end of the last outage (epoch s), 0 for none; what the store's clock says (epoch s) }
local P, now, expected = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local gap, heartbeat = unpack(redis.call('MGET', P .. 'gap', P .. 'heartbeat'))
--@ include gap.lua
--@ include clock.lua
if fresh then
  redis.call('SET', P .. 'gap', string.format('%.0f %.0f', gap_from, gap_until))
elseif gap and gap_until == 0 then
  redis.call('DEL', P .. 'gap')
end
if not heartbeat or now > heartbeat or heartbeat > now + AHEAD then
  redis.call('SET', P .. 'heartbeat', string.format('%.0f', now))
end
return { gap_until, tonumber(redis.call('TIME')[1]) }
