#!lua flags=allow-oom
-- sign_in.lua: opens a session, also in a full store; beyond the most, one is closed: of the same token if it has any,
-- so that nobody signs others out by signing in again and again, and of those the one that ends first.
-- KEYS[1]   the prefix
-- ARGV[1]   SHA-256 of the session's secret   ARGV[2] now   ARGV[3] when it ends (epoch s)   ARGV[4] most sessions
-- ARGV[5]   id of the token it begins with ('': a link)   ARGV[6…] further fields and values
-- Answer    1; 0 when the session would have ended already
local P, call = KEYS[1], redis.call
local now, ends, most, token = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local sessions, session = P .. 'admin:sessions', P .. 'admin:session:'

local function one_too_many(digests)
  for _, digest in ipairs(digests) do
    if call('HGET', session .. digest, 'token') == token then return digest end
  end
  return digests[1]
end

if ends <= now then return 0 end
call('ZREMRANGEBYSCORE', sessions, '-inf', now)
while call('ZCARD', sessions) >= most do
  local digest = one_too_many(call('ZRANGE', sessions, 0, -1))
  call('UNLINK', session .. digest)
  call('ZREM', sessions, digest)
end
call('HSET', session .. ARGV[1], 'token', token, unpack(ARGV, 6))
call('EXPIRE', session .. ARGV[1], ends - now)
call('ZADD', sessions, ends, ARGV[1])
return 1
