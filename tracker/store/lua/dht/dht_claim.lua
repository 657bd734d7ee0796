#!lua
-- dht_claim.lua: takes a registered torrent for a lookup in the DHT, unless one began lately, by whatever tracker.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1': all torrents that are not private
-- ARGV[4]   not if it was looked up at this time (epoch s) or later
-- Answer    1; 0 when the torrent is not registered, does not take part, or was looked up
local P, call, ih = KEYS[1], redis.call, ARGV[1]
--@ include lib/dht_part.lua
local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
local v = call('HMGET', P .. 't:' .. ih, 'private', 'enabled', 'tid')
local tid = v[3] or known[1]
if not known[1] or not takes_part(known[1], known[2], v[1], v[2], ARGV[3] == '1') then return 0 end
if tonumber(call('ZSCORE', P .. 'i:dht', tid) or '0') >= tonumber(ARGV[4]) then return 0 end
call('ZADD', P .. 'i:dht', ARGV[2], tid)
return 1
