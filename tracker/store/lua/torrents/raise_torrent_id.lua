#!lua
-- raise_torrent_id.lua: ids that are given out from now on are above this one.
-- ARGV[1]   an id of a site's own
-- Answer    nothing
local P, call, wanted = KEYS[1], redis.call, tonumber(ARGV[1])
-- Ids of a shard are 256 apart (registration.lua).
if string.find(P, ':{%d+%l+}:$') then wanted = math.floor(wanted / 256) end
if wanted > (tonumber(call('GET', P .. 'torrent_id') or '') or 0) then
  call('SET', P .. 'torrent_id', string.format('%.0f', wanted))
end
