#!lua flags=allow-oom
-- unlink.lua: a torrent is no half of a hybrid torrent any more.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] info hash of the other half ('': whichever it is)
-- Answer    the info hash of the other half; nil when it was none of this one
local P, call = KEYS[1], redis.call
--@ include lib/edits.lua
local key = P .. 't:' .. ARGV[1]
local of, v2 = unpack(call('HMGET', key, 'hybrid_of', 'hybrid'))
local other = of or v2
if not other or ARGV[2] ~= '' and other ~= ARGV[2] then return nil end
call('HDEL', key, 'hybrid_of', 'hybrid')
record_edit('', ARGV[1])
return other
