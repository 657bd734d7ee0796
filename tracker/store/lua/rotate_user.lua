#!lua
-- rotate_user.lua: gives a user a new passkey; the old one is unknown from then on.
-- KEYS[1]   the prefix   ARGV[1] old passkey   ARGV[2] new passkey
-- Answer    the user id; '' when the new passkey is taken; false when there is no such user
local P, call = KEYS[1], redis.call
local uid = call('HGET', P .. 'user:' .. ARGV[1], 'user_id')
if not uid then return false end
if call('EXISTS', P .. 'user:' .. ARGV[2]) == 1 then return '' end
call('ZADD', P .. 'users', uid, ARGV[2])
call('ZREM', P .. 'users', ARGV[1])
call('HSET', P .. 'u:' .. uid, 'passkey', ARGV[2])
call('RENAME', P .. 'user:' .. ARGV[1], P .. 'user:' .. ARGV[2])
return uid
