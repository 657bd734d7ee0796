#!lua flags=allow-oom
-- sign_in.lua: opens a session, also in a full store. Beyond the maximum it closes the session that ends first, of the
-- same token if it has one: repeated sign-ins therefore do not sign others out.
-- ARGV[1]   SHA-256 of the session's secret   ARGV[2] now   ARGV[3] when it ends (epoch s)   ARGV[4] max sessions
-- ARGV[5]   id of its token ('': a sign-in link)   ARGV[6..] further fields and values
-- Answer    1; 0 when the session would have ended already
local P, call = KEYS[1], redis.call
local now, ends, max_sessions, token = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local sessions, session = P .. 'admin:sessions', P .. 'admin:session:'

local function session_to_close(digests)
  for _, digest in ipairs(digests) do
    if call('HGET', session .. digest, 'token') == token then return digest end
  end
  return digests[1]
end

if ends <= now then return 0 end
call('ZREMRANGEBYSCORE', sessions, '-inf', now)
while call('ZCARD', sessions) >= max_sessions do
  local digest = session_to_close(call('ZRANGE', sessions, 0, -1))
  call('UNLINK', session .. digest)
  call('ZREM', sessions, digest)
end
call('HSET', session .. ARGV[1], 'token', token, unpack(ARGV, 6))
call('EXPIRE', session .. ARGV[1], ends - now)
call('ZADD', sessions, ends, ARGV[1])
return 1
