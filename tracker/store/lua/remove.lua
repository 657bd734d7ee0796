#!lua flags=allow-oom
-- remove.lua: takes a torrent's registration away; with nobody in its swarm all of its keys go too. Peers that
-- are left are reaped as always, and what remains then is forgotten by the sweep.
-- KEYS[1]   the prefix
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1': go on with what the last call left
-- Answer    0 it was not registered, 1 the registration is gone, 2 everything is gone, 3 so far: call again to go on
local P, now, memory = KEYS[1], tonumber(ARGV[2]), 0
--@ include swarm.lua
--@ include naming.lua
--@ include forgetting.lua
if ARGV[3] == '1' then
  if call('EXISTS', P .. 'info_hash:' .. ARGV[1]) == 1 then return 1 end -- it was added again meanwhile
elseif call('DEL', P .. 'info_hash:' .. ARGV[1]) == 0 then
  return 0
end
local t = load(ARGV[1])
if t.seeders + t.leechers > 0 then return 1 end
return forget(t) and 2 or 3
