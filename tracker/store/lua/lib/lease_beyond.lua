-- lease_beyond.lua: finds leases with a wrong end. After `call`.
--
-- Leases that end later than any lease can: of a worker that died while its clock was ahead. Clocks of trackers differ
-- a little, so `latest` has to be well after the end of a lease that begins now.
local function leases_beyond(set, latest, max)
  return call('ZRANGEBYSCORE', set, string.format('(%.0f', latest), '+inf', 'LIMIT', 0, max)
end
