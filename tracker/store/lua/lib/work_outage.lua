-- work_outage.lua: the clock of leases. Needs `now_ms` (epoch ms).
--
-- Leases end on the steady clock, which never steps and stands still during outages. So an interruption ends none.
local now = math.floor(now_ms / 1000)
--@ include lib/outage.lua

-- What the steady clock shows (ms), and the value of `key`, which costs no command here.
local function lease_clock(key)
  local stored = call('MGET', unpack({ P .. 'gap', P .. 'heartbeat', key }))
  local _, _, steady = last_outage(stored[1], stored[2])
  return now_ms - 1000 * (now - steady), stored[3]
end
