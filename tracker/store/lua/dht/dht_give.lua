#!lua
-- dht_give.lua: stores peers that a lookup in the DHT found, for announces of a registered torrent that takes part.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1': all torrents that are not private
-- ARGV[4]   family: 4 or 6   ARGV[5] packed endpoints   ARGV[6] until when they may be handed out (epoch s)
-- Answer    1; 0 when the torrent is not registered or does not take part, or the time is over
local P, call, ih = KEYS[1], redis.call, ARGV[1]
--@ include lib/dht_part.lua
local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
local v = call('HMGET', P .. 't:' .. ih, 'private', 'enabled', 'dht')
if not known[1] or not takes_part(known[1], known[2], v[1], v[2], ARGV[3] == '1') then return 0 end
local seconds = ARGV[6] - ARGV[2]
if seconds <= 0 then return 0 end
call('SET', P .. 'dht:peers:' .. ih .. (ARGV[4] == '6' and ':6' or ''), ARGV[5], 'EX', seconds)
if (tonumber(v[3]) or 0) < tonumber(ARGV[6]) then call('HSET', P .. 't:' .. ih, 'dht', ARGV[6]) end
return 1
