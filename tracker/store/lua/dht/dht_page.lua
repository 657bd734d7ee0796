#!lua flags=no-writes
-- dht_page.lua: torrents that take part in the DHT and were not looked up for some time, of a page of the register.
-- ARGV[1]   the order: `seeders`, the fewest first, or `info_hash`   ARGV[2] rank of the first torrent in it
-- ARGV[3]   how many torrents to read
-- ARGV[4]   '1': all torrents that are not private   ARGV[5] looked up before this time (epoch s), or never
-- Answer    { how many torrents were read, then for each found: info hash, seeders, when it was looked up (0: never) }
local P, first, count = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local before = tonumber(ARGV[5])
--@ include lib/dht_part.lua
--@ include lib/counts.lua

local ids = redis.call('ZRANGE', P .. 'i:' .. ARGV[1], first, first + count - 1)
if #ids == 0 then return { 0 } end
local keys = {}
for i, id in ipairs(ids) do keys[i] = P .. 'torrent_id:' .. id end
local hashes, looked_up = redis.call('MGET', unpack(keys)), redis.call('ZMSCORE', P .. 'i:dht', unpack(ids))
local found = { #ids }
for i, ih in ipairs(hashes) do
  local at = tonumber(looked_up[i] or '0')
  if ih and at < before then
    local v = redis.pcall('HMGET', P .. 't:' .. ih, 'private', 'enabled', 'seeders')
    local known = redis.call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
    if not v.err and known[1] and takes_part(known[1], known[2], v[1], v[2], ARGV[4] == '1') then
      found[#found + 1] = ih
      found[#found + 1] = count_of[v[3]] or 0
      found[#found + 1] = string.format('%.0f', at)
    end
  end
end
return found
