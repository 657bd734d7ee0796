#!lua
-- hold_lease.lua: takes, extends or releases the right to do what one tracker does, such as to run a node of the DHT.
-- ARGV[1]   kind   ARGV[2] name   ARGV[3] the caller's token   ARGV[4] now (epoch s)
-- ARGV[5]   for how long (s); 0 to release it
-- Answer    how many leases of the kind have not ended; 0 if another tracker has this one, or it is released
local P, call = KEYS[1], redis.call
--@ include lib/leases.lua
local leases, name, now, seconds = P .. 'leases:' .. ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
if seconds == 0 then
  if has_lease(leases, name, ARGV[3]) then release_lease(leases, name) end
  return 0
end
if not hold_lease(leases, name, ARGV[3], now, seconds) then return 0 end
return call('ZCOUNT', leases, string.format('(%.0f', now), latest_end(now, seconds))
