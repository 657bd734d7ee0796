#!lua flags=allow-oom
-- allow.lua: removes a torrent from the deny list.
-- KEYS[1]   the prefix
-- ARGV[1]   info hash (40 hex digits)
-- Answer    1; 0 when it was not denied
local P, call = KEYS[1], redis.call
redis.pcall('ZREM', P .. 'denied', ARGV[1])
return call('DEL', P .. 'deny:' .. ARGV[1])
