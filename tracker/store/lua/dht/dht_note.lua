#!lua
-- dht_note.lua: notes for a registered torrent that takes part in the DHT what a lookup there does or has found.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1': all torrents that are not private
-- ARGV[4]   one of
--   claim   the torrent is taken for a lookup, unless one began at ARGV[5] (epoch s) or later, by whatever tracker
--   found   a lookup has ended. ARGV[5] seeders   ARGV[6] peers ('': no node answered, so only the time is stored)
--   give    announces get peers. ARGV[5] family: 4 or 6   ARGV[6] packed endpoints   ARGV[7] until when (epoch s)
-- Answer    1; 0 when the torrent is not registered or does not take part, was looked up, or the time is over
local P, call, ih, now = KEYS[1], redis.call, ARGV[1], ARGV[2]
--@ include lib/dht_part.lua
local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
local v = call('HMGET', P .. 't:' .. ih, 'private', 'enabled', 'tid', 'dht')
local tid = v[3] or known[1]
if not known[1] or not takes_part(known[1], known[2], v[1], v[2], ARGV[3] == '1') then return 0 end
if ARGV[4] == 'give' then
  local seconds = ARGV[7] - now
  if seconds <= 0 then return 0 end
  call('SET', P .. 'dht:peers:' .. ih .. (ARGV[5] == '6' and ':6' or ''), ARGV[6], 'EX', seconds)
  if (tonumber(v[4]) or 0) < tonumber(ARGV[7]) then call('HSET', P .. 't:' .. ih, 'dht', ARGV[7]) end
  return 1
elseif ARGV[4] == 'claim' then
  if tonumber(call('ZSCORE', P .. 'i:dht', tid) or '0') >= tonumber(ARGV[5]) then return 0 end
elseif ARGV[6] ~= '' then
  call('HSET', P .. 't:' .. ih, 'dht_seeds', ARGV[5], 'dht_peers', ARGV[6], 'dht_at', now)
end
call('ZADD', P .. 'i:dht', now, tid)
return 1
