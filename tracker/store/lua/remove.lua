#!lua flags=allow-oom
-- remove.lua: takes a torrent's registration away; with nobody in its swarm all of its keys go too. Peers that
-- are left are reaped as always, and what remains then is forgotten by the sweep.
-- KEYS[1]   the prefix   ARGV[1] info hash (40 hex digits)
-- Answer    0 it was not registered, 1 the registration is gone, 2 everything is gone
local P, now, memory = KEYS[1], 0, 0
--@ include swarm.lua
if call('DEL', P .. 'info_hash:' .. ARGV[1]) == 0 then return 0 end
local t = load(ARGV[1])
if t.seeders + t.leechers > 0 then return 1 end
forget(t)
return 2
