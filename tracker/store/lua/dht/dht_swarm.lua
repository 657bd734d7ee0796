#!lua flags=no-writes
-- dht_swarm.lua: what a node of the DHT answers about a torrent.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] family: 4 or 6   ARGV[3] '1': all torrents that are not private;
--   '2': the same, but none has peers unless it is public
-- ARGV[4]   max endpoints of each array   ARGV[5] a random whole number
-- Answer    { packed seeders, packed leechers }, none while peers are being removed; false when the torrent takes no
--   part, or its keys are of a wrong type
local P, ih, family = KEYS[1], ARGV[1], ARGV[2]
local slots, random, size = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[2] == '4' and 6 or 18
--@ include lib/dht_part.lua
--@ include lib/counts.lua

local function window(array, n)
  local key = P .. 'swarm:' .. ih .. ':' .. array
  if n == 0 then return '' end
  local start = n > slots and random % n or 0
  local peers = redis.pcall('GETRANGE', key, start * size, math.min(n, start + slots) * size - 1)
  if type(peers) ~= 'string' then return '' end
  if start + slots > n and start > 0 then
    peers = peers .. redis.call('GETRANGE', key, 0, (start + slots - n) * size - 1)
  end
  return peers
end

local keys = redis.call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
local v = redis.pcall('HMGET', P .. 't:' .. ih, 'private', 'enabled', 'arrays')
if v.err or not takes_part(keys[1], keys[2], v[1], v[2], ARGV[3] ~= '0') then return false end
local hidden = ARGV[3] == '2' and not takes_part(keys[1], keys[2], v[1], v[2], false)
if hidden or redis.call('EXISTS', P .. 'removing') == 1 then return { '', '' } end
local numbers, at = read_arrays(v[3]), family == '4' and 1 or 3
return { window('s' .. family, numbers[at]), window('l' .. family, numbers[at + 1]) }
