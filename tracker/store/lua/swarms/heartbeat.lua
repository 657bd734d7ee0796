#!lua flags=allow-oom
-- heartbeat.lua: records that a tracker runs, records interruptions (outage.lua), and creates missing global counters.
-- ARGV[1]   now (epoch s)   ARGV[2] what the store's clock should show (epoch s; '' unknown)
-- ARGV[3]   by how much the clock of this process has stepped since its last heartbeat (s; '' unknown, or too long ago)
-- ARGV[4]   how long ago that heartbeat was (s)   ARGV[5] the number of this process, if it has WebSockets, or ''
-- ARGV[6]   1: the first heartbeat over a new connection
-- ARGV[7]   when the store acknowledged announces that this server may not have (epoch s; '' none)
-- ARGV[8..] info hash and peer id (hex) of each, and its time (epoch s; '' for a stop)
-- Answer    { end of the last interruption (epoch s), 0 for none; what the store's clock shows (epoch s); for how long
--   announces may be missing that this call has noticed (s), nil for none }
local P, call, now, step, passed = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4]) or 0
local is_new = ARGV[6] == '1'
--@ include lib/store_clock.lua
local PROMOTED = 10 -- seconds: after a planned failover the last heartbeat is younger
local stored = call('MGET', P .. 'gap', P .. 'heartbeat', P .. 'replication_id')
local beat = tonumber(stored[2] or '')

-- Whether the acknowledged announces are gone, and no interruption recorded since tells.
local function has_lost_announces()
  local _, till = last_outage(stored[1], nil)
  if till >= (tonumber(ARGV[7]) or 0) then return false end
  for i = 8, #ARGV, 3 do
    local at, peer = tonumber(ARGV[i + 2]), (call('HGET', P .. 't:' .. ARGV[i], 'tid') or '') .. ':' .. ARGV[i + 1]
    if not at and call('EXISTS', P .. 'ptimeout:' .. peer) == 0 then return false end
    -- One that is remembered may have left since, by way of another tracker.
    if at and (tonumber(call('HGET', P .. 'p:' .. peer, 'last_announce') or '') or 0) >= at then return false end
  end
  return true
end

-- Whether this server was a replica of the one that took the last heartbeat. It may not have what followed that.
local function was_promoted()
  local info = redis.pcall('INFO', 'replication')
  local id = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
  if not id or id == stored[3] then return false end
  call('SET', P .. 'replication_id', id)
  if not beat or now - beat <= PROMOTED or string.match(info, 'master_replid2:(%x+)') ~= stored[3] then return false end
  -- A server that loads its own copy goes on with its history, too.
  local uptime = string.match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  return tonumber(uptime) > now - beat
end

-- By how much the clock has run ahead of the steady clock since the last heartbeat of any process. A process that knows
-- its own step is right, whatever the clocks of others show; the first one to report it counts.
local function shift()
  if not beat then return 0 end
  local since = now - beat
  if since > OUTAGE and is_new then return since end -- as of a copy of the store that was restored
  if not step then return (since > OUTAGE or since < -CLOCK_SLACK) and since or 0 end
  if math.abs(step) <= CLOCK_SLACK or math.abs(since - step - passed / 2) > passed / 2 + CLOCK_SLACK then return 0 end
  return step
end

local shifted, promoted, lost = shift(), is_new and was_promoted(), nil
if shifted ~= 0 then
  save_gap(stored[1], now - shifted, now, shifted, math.max(0, -shifted))
elseif promoted or has_lost_announces() then
  lost = now - math.min(beat or now, tonumber(ARGV[7]) or now, now)
  save_gap(stored[1], now - lost, now, lost, 0)
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
return { till, tonumber(call('TIME')[1]), lost or false }
