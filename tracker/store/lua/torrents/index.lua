#!lua
-- index.lua: lists torrents that are not listed as they should: by name, by info hash, as denied.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)
-- ARGV[2..] four for each: info hash, its torrent id, its name as it was when it was folded (its first 1020 bytes), and
--           that folded. A torrent that has another name by now is left to whoever gave it that one
-- Answer    how many could not be looked at
local P, now, memory = KEYS[1], tonumber(ARGV[1]), 0
--@ include swarm.lua
--@ include naming.lua

local function list(ih, tid, name, folded)
  if string.sub(call('HGET', P .. 't:' .. ih, 'name') or '', 1, LONGEST_NAME) == name then list_name(ih, folded) end
  if tid ~= '' and call('GET', P .. 'torrent_id:' .. tid) == ih and call('ZSCORE', P .. 'i:seeders', tid) then
    list_hash(ih, tid)
  end
  if call('EXISTS', P .. 'deny:' .. ih) == 1 then
    call('ZADD', P .. 'denied', 'NX', now, ih)
  else
    call('ZREM', P .. 'denied', ih)
  end
end

local failed = 0
for i = 2, #ARGV, 4 do
  if not pcall(list, unpack(ARGV, i, i + 3)) then failed = failed + 1 end
end
return failed
