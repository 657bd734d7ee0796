#!lua
-- add.lua: registers a torrent by hand. A known one keeps its id, its figures and its swarm.
-- KEYS[1]   the prefix
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1' when its name is among the fields
-- ARGV[4]   that name, folded   ARGV[5..] pairs of field and value to set
-- Answer    { its id, 1 when it was new }; false when a site registered it with an id that cannot be one
local P, now, memory = KEYS[1], tonumber(ARGV[2]), 0
--@ include swarm.lua
--@ include registering.lua
--@ include naming.lua

local t = load(ARGV[1])
local registered = call('GET', P .. 'info_hash:' .. t.ih)
if registered and (#registered > 15 or not string.match(registered, '^[1-9]%d*$')) then return false end
for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do call('ZCARD', P .. 'i:' .. index) end

local tid = registered or register(t)
-- Peers go by the id they joined with; one that was given out since waits until they are gone.
if t.seeders + t.leechers == 0 and not id_taken(t, tid) then bind(t, tid) end
call('HDEL', t.key, 'auto')
if #ARGV > 4 then call('HSET', t.key, unpack(ARGV, 5)) end
if ARGV[3] == '1' then list_name(t.ih, ARGV[4]) end
if not registered then rank({ tid }) end
return { tid, registered and 0 or 1 }
