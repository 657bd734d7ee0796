#!lua
-- add.lua: registers a torrent by hand. A known torrent keeps its id, its counts and its swarm.
-- KEYS[1]   the prefix
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1' when its name is among the fields
-- ARGV[4]   that name, folded   ARGV[5..] pairs of field and value to set
-- Answer    { its id, 1 when it was new }; false when a site registered it under an invalid id
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/torrent.lua
--@ include lib/torrent_ids.lua
--@ include lib/torrent_rankings.lua
--@ include lib/info_hash_index.lua
--@ include lib/registration.lua
--@ include lib/new_torrent_id.lua
--@ include lib/names.lua

local t = load_torrent(ARGV[1])
local registered = call('GET', P .. 'info_hash:' .. t.ih)
if registered and (#registered > 15 or not string.match(registered, '^[1-9]%d*$')) then return false end
check_rankings()

local tid = registered or register(t)
-- Peers keep the id that they joined with; an id that was assigned since has to wait until they are gone.
if t.seeders + t.leechers == 0 and not is_id_taken(t, tid) then bind_id(t, tid) end
call('HDEL', t.key, 'auto', 'sole')
redis.pcall('ZREM', P .. 'i:empty', tid)
if #ARGV > 4 then call('HSET', t.key, unpack(ARGV, 5)) end
if ARGV[3] == '1' then list_name(t.ih, ARGV[4]) end
if not registered then
  call('HSET', t.key, 'added', string.format('%d', now)) -- it may have peers of an earlier registration
  add_to_scoring({ tid })
end
return { tid, registered and 0 or 1 }
