#!lua
-- index.lua: adds torrents to the indexes that miss them: by name, by info hash, by when they became empty, denied.
-- ARGV[1]   now (epoch s)
-- ARGV[2..] four for each: info hash, its torrent id, its name when it was folded (the first 1020 bytes), and the
--           folded name. A torrent whose name has changed since is skipped: the program that changed it lists it
-- Answer    nothing
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/registration.lua
--@ include lib/unlisted.lua

local function list(ih, tid, name, folded)
  list_if_unchanged(P .. 't:' .. ih, P .. 'i:name', ih, name, folded)
  if tid ~= '' and call('GET', P .. 'torrent_id:' .. tid) == ih and call('ZSCORE', P .. 'i:seeders', tid) then
    index_info_hash(ih, tid)
    local since = empty_since(load_torrent(ih))
    if since then call('ZADD', P .. 'i:empty', since, tid) end
  end
  if call('EXISTS', P .. 'deny:' .. ih) == 1 then
    call('ZADD', P .. 'denied', 'NX', now, ih)
  else
    call('ZREM', P .. 'denied', ih)
  end
end

for i = 2, #ARGV, 4 do pcall(list, unpack(ARGV, i, i + 3)) end -- a key of a wrong type: leave this torrent out
