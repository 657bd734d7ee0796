#!lua
-- dht_lease.lua: the right to run the node of the DHT of a name. One tracker has it.
-- KEYS[1]   the prefix
-- ARGV[1]   name   ARGV[2] the caller's token   ARGV[3] now (epoch s)   ARGV[4] until when (epoch s); '' to release it
-- Answer    1 the caller has it (or has released it), 0 another one has it
local P, call, name = KEYS[1], redis.call, ARGV[1]
local leases = P .. 'leases:dht'
local tokens = leases .. ':tokens'
local holder, ends = call('HGET', tokens, name), tonumber(call('ZSCORE', leases, name) or '0')
if holder and holder ~= ARGV[2] and ends > tonumber(ARGV[3]) then return 0 end
if ARGV[4] == '' then
  call('ZREM', leases, name)
  call('HDEL', tokens, name)
else
  call('ZADD', leases, ARGV[4], name)
  call('HSET', tokens, name, ARGV[2])
end
return 1
