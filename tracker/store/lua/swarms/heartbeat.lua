#!lua flags=allow-oom
-- heartbeat.lua: records that a tracker runs, records the last outage, and creates missing global counters.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] what the store's clock should show (epoch s; '' unknown)
-- Answer    { end of the last outage (epoch s), 0 for none; what the store's clock shows (epoch s) }
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/outage.lua
--@ include lib/store_clock.lua
local outage_from, outage_until, gap, heartbeat = current_outage(ARGV[2])
if outage_until > 0 then
  local outage = string.format('%.0f %.0f', outage_from, outage_until)
  if outage ~= gap then call('SET', P .. 'gap', outage) end
elseif gap then
  call('DEL', P .. 'gap')
end
local last_beat = tonumber(heartbeat or '')
if not last_beat or now > last_beat or last_beat > now + CLOCK_SLACK then
  call('SET', P .. 'heartbeat', string.format('%.0f', now))
end
-- The global counters exist from the start, and after they were wiped.
for counter in string.gmatch('leechers seeders announces scrapes requests credit_cut reaped repairs forgotten '
    .. 'outbox_dropped tally_dropped software_dropped unique_skipped', '%S+') do
  call('SET', P .. 'stats:' .. counter, '0', 'NX')
end
return { outage_until, tonumber(call('TIME')[1]) }
