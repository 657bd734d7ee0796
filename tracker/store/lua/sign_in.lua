#!lua flags=allow-oom
-- sign_in.lua: opens a session, also in a full store; beyond the most, the one that ends first is closed.
-- KEYS[1]   the prefix
-- ARGV[1]   SHA-256 of the session's secret   ARGV[2] now   ARGV[3] when it ends (epoch s)   ARGV[4] most sessions
-- ARGV[5…]  fields and values
-- Answer    1; 0 when the session would have ended already
local P, call = KEYS[1], redis.call
local now, ends, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local sessions, session = P .. 'admin:sessions', P .. 'admin:session:' .. ARGV[1]
if ends <= now then return 0 end
call('ZREMRANGEBYSCORE', sessions, '-inf', now)
while call('ZCARD', sessions) >= most do
  call('UNLINK', P .. 'admin:session:' .. call('ZPOPMIN', sessions)[1])
end
call('HSET', session, unpack(ARGV, 5))
call('EXPIRE', session, ends - now)
call('ZADD', sessions, ends, ARGV[1])
return 1
