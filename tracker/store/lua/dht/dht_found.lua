#!lua
-- dht_found.lua: stores what a lookup in the DHT found about a registered torrent that takes part.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1': all torrents that are not private
-- ARGV[4]   seeders   ARGV[5] peers ('': no node answered, so only the time of the lookup is stored)
-- Answer    1; 0 when the torrent is not registered or does not take part
local P, call, ih = KEYS[1], redis.call, ARGV[1]
--@ include lib/dht_part.lua
local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
local v = call('HMGET', P .. 't:' .. ih, 'private', 'enabled', 'tid')
local tid = v[3] or known[1]
if not known[1] or not takes_part(known[1], known[2], v[1], v[2], ARGV[3] == '1') then return 0 end
call('ZADD', P .. 'i:dht', ARGV[2], tid)
if ARGV[5] ~= '' then
  call('HSET', P .. 't:' .. ih, 'dht_seeds', ARGV[4], 'dht_peers', ARGV[5], 'dht_at', ARGV[2])
end
return 1
