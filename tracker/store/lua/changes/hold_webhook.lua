#!lua flags=allow-oom
-- hold_webhook.lua: takes or extends the lease to deliver changes to a URL, and writes the state of its deliveries.
-- ARGV[1]   id of the URL   ARGV[2] the caller's token   ARGV[3] now (epoch s)   ARGV[4] how long the lease lasts (s)
-- ARGV[5]   how long the state is kept (s)   ARGV[6..] pairs of field and value to write
-- Answer    the state as a flat list of fields and values; nil if another caller has the lease, or if the caller has
--   pairs to write and another one had the lease since it took it: then nothing changed
local P, call = KEYS[1], redis.call
--@ include lib/leases.lua
local state, leases, id, token = P .. 'webhook:' .. ARGV[1], P .. 'leases:webhook', ARGV[1], ARGV[2]
if #ARGV > 5 and not has_lease(leases, id, token) then return nil end
if not hold_lease(leases, id, token, tonumber(ARGV[3]), tonumber(ARGV[4])) then return nil end
if #ARGV > 5 then call('HSET', state, unpack(ARGV, 6)) end
call('EXPIRE', state, ARGV[5])
return call('HGETALL', state)
