#!lua flags=allow-oom
-- remove.lua: unregisters a torrent; an empty torrent is deleted with all its keys. Peers that are left are removed
-- within seconds, and the sweep deletes the rest then.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] '1': go on where the last call stopped
-- Answer    0 it was not registered, 1 it is unregistered, 2 it is deleted, 3 partly deleted: call again to go on
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/torrent.lua
--@ include lib/torrent_deletion.lua
--@ include lib/refused_torrents.lua
--@ include lib/edits.lua
if ARGV[3] == '1' then
  if call('EXISTS', P .. 'info_hash:' .. ARGV[1]) == 1 then return 1 end -- it was added again meanwhile
elseif call('DEL', P .. 'info_hash:' .. ARGV[1]) == 0 then
  return 0
end
local t = load_torrent(ARGV[1])
if t.seeders + t.leechers > 0 then
  note_refusal(ARGV[1])
  record_edit('', ARGV[1]) -- a list shows it as unregistered
  return 1
end
return delete_torrent(t) and 2 or 3
