#!lua
-- link.lua: makes a registered torrent one half of a hybrid torrent. The other half, which may be in another shard, is
-- linked by a call of its own.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] its field: hybrid_of of the v2 half, hybrid of the v1 half
-- ARGV[3]   the field that it may not have: the other one   ARGV[4] info hash of the other half
-- ARGV[5]   '1': only check
-- Answer    1; 0 when it is not registered; -1 when it is a half of another torrent
local P, call = KEYS[1], redis.call
--@ include lib/edits.lua
if call('EXISTS', P .. 'info_hash:' .. ARGV[1]) == 0 then return 0 end
local key = P .. 't:' .. ARGV[1]
local own, opposite = unpack(call('HMGET', key, ARGV[2], ARGV[3]))
if opposite and opposite ~= '' or own and own ~= '' and own ~= ARGV[4] then return -1 end
if ARGV[5] == '1' or own == ARGV[4] then return 1 end
call('HSET', key, ARGV[2], ARGV[4])
record_edit('', ARGV[1])
return 1
