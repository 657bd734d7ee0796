#!lua flags=allow-oom
-- allow.lua: removes a torrent from the deny list.
-- ARGV[1]   info hash (40 hex digits)
-- Answer    1; 0 when it was not denied
local P, call = KEYS[1], redis.call
--@ include lib/edits.lua
redis.pcall('ZREM', P .. 'denied', ARGV[1])
local allowed = call('DEL', P .. 'deny:' .. ARGV[1])
if allowed == 1 then record_edit('', ARGV[1]) end
return allowed
