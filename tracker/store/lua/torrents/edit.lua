#!lua
-- edit.lua: sets fields of a registered torrent.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] '1' when its name is among the fields   ARGV[3] that name, folded
-- ARGV[4..] pairs of field and value
-- Answer    1; 0 when it is not registered
local P, call = KEYS[1], redis.call
--@ include lib/names.lua
--@ include lib/index_entries.lua
--@ include lib/edits.lua
--@ include lib/refused_torrents.lua
if call('EXISTS', P .. 'info_hash:' .. ARGV[1]) == 0 then return 0 end
local key = P .. 't:' .. ARGV[1]
call('HSET', key, unpack(ARGV, 4))
if ARGV[2] == '1' then list_name(key, P .. 'i:name', ARGV[1], ARGV[3]) end
local tid = call('HGET', key, 'tid')
if tid and call('ZSCORE', P .. 'i:seeders', tid) then
  note_torrent(tid, key)
  write_index_entries()
end
note_refusal(ARGV[1])
record_edit('', ARGV[1])
return 1
