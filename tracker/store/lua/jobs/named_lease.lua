#!lua
-- named_lease.lua: the right to run something that has a name, such as a node of the DHT. One tracker has it.
-- KEYS[1]   the prefix
-- ARGV[1]   kind   ARGV[2] name   ARGV[3] the caller's token   ARGV[4] now (epoch s)
-- ARGV[5]   until when (epoch s); '' to release it
-- Answer    1 the caller has it (or has released it), 0 another one has it
local P, call, name = KEYS[1], redis.call, ARGV[2]
local leases = P .. 'leases:' .. ARGV[1]
local tokens = leases .. ':tokens'
local holder, ends = call('HGET', tokens, name), tonumber(call('ZSCORE', leases, name) or '0')
if holder and holder ~= ARGV[3] and ends > tonumber(ARGV[4]) then return 0 end
if ARGV[5] == '' then
  call('ZREM', leases, name)
  call('HDEL', tokens, name)
else
  call('ZADD', leases, ARGV[5], name)
  call('HSET', tokens, name, ARGV[3])
end
return 1
