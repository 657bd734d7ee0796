#!lua
-- freeleech.lua: gives a user a freeleech token for a torrent, changes its end, or takes it back.
-- ARGV[1]   user id   ARGV[2] torrent id   ARGV[3] its end (epoch s), '' to take it back   ARGV[4] now (epoch s)
-- ARGV[5]   max tokens of a user
-- Answer    1; 0 when there was none to take back, -1 when the user has as many as allowed, -2 for an unknown user
local P, call = KEYS[1], redis.call
local uid, tid, ends, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local user = P .. 'u:' .. uid
local tokens = user .. ':freeleech'
if call('ZCOUNT', P .. 'users', uid, uid) == 0 or call('SISMEMBER', P .. 'deleting', uid) == 1 then return -2 end

-- An announce reads the token from the user's hash, which it reads anyway.
local FIELD = 'freeleech:'
local ended = call('ZRANGEBYSCORE', tokens, '-inf', now)
if #ended > 0 then
  for i, id in ipairs(ended) do ended[i] = FIELD .. id end
  call('HDEL', user, unpack(ended))
  call('ZREMRANGEBYSCORE', tokens, '-inf', now)
end
if ends == '' then
  call('HDEL', user, FIELD .. tid)
  return call('ZREM', tokens, tid)
end
if not call('ZSCORE', tokens, tid) and call('ZCARD', tokens) >= tonumber(ARGV[5]) then return -1 end
call('HSET', user, FIELD .. tid, ends)
call('ZADD', tokens, ends, tid)
return 1
