#!lua flags=allow-oom
-- delete_user.lua: deletes a user's totals and sets, and what is derived from them, in one step.
-- KEYS[1]   the prefix
-- ARGV[1]   user id
-- Answer    how many keys there were
local P, uid = KEYS[1], ARGV[1]
local user = P .. 'u:' .. uid
local keys = redis.call('UNLINK', user, user .. ':active', user .. ':complete', user .. ':incomplete', user .. ':hnr')
redis.pcall('ZREM', P .. 'i:hnr', uid)
return keys
