#!lua flags=allow-oom
-- heartbeat.lua: records that a tracker runs, records interruptions (outage.lua), and creates missing global counters.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] what the store's clock should show (epoch s; '' unknown)
-- ARGV[3]   by how much the clock of this process has stepped since its last heartbeat (s; '' unknown, or too long ago)
-- ARGV[4]   how long ago that heartbeat was (s)   ARGV[5] the number of this process, if it has WebSockets, or ''
-- Answer    { end of the last interruption (epoch s), 0 for none; what the store's clock shows (epoch s) }
local P, call, now, step, passed = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4]) or 0
--@ include lib/outage.lua
--@ include lib/store_clock.lua
local stored = call('MGET', P .. 'gap', P .. 'heartbeat')
local beat = tonumber(stored[2] or '')

-- By how much the clock has run ahead of the steady clock since the last heartbeat of any process. A process that knows
-- its own step is right, whatever the clocks of others show; the first one to report it counts.
local function shift()
  if not beat then return 0 end
  local since = now - beat
  if not step then return (since > OUTAGE or since < -CLOCK_SLACK) and since or 0 end
  if math.abs(step) <= CLOCK_SLACK or math.abs(since - step - passed / 2) > passed / 2 + CLOCK_SLACK then return 0 end
  return step
end

local shifted = shift()
if shifted ~= 0 then
  save_gap(stored[1], now - shifted, now, shifted, math.max(0, -shifted))
else
  current_outage(ARGV[2])
end
local _, till = last_outage(call('GET', P .. 'gap'), nil)
if not beat or now > beat or now < beat - CLOCK_SLACK then
  call('SET', P .. 'heartbeat', string.format('%.0f', now))
end
if (ARGV[5] or '') ~= '' then call('HSET', P .. 'ws:processes', ARGV[5], string.format('%.0f', now)) end
-- The global counters exist from the start, and after they were wiped.
for counter in string.gmatch('leechers seeders announces scrapes requests credit_cut reaped repairs forgotten '
    .. 'outbox_dropped tally_dropped software_dropped unique_skipped', '%S+') do
  call('SET', P .. 'stats:' .. counter, '0', 'NX')
end
return { till, tonumber(call('TIME')[1]) }
