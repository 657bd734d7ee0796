#!lua
-- rank_torrents.lua: ranks some torrents by size, by when they were added and by their last activity.
-- ARGV[1]   cursor in `i:seeders` ('0' at the start)   ARGV[2] torrents, approximately
-- Answer    { the next cursor, '0' at the end; how many were visited; info hashes of those with a field hybrid_of }
local P, call = KEYS[1], redis.call
--@ include lib/index_entries.lua
local page = call('ZSCAN', P .. 'i:seeders', ARGV[1], 'COUNT', ARGV[2])
local halves = {}
for i = 1, #page[2], 2 do
  local ih = call('GET', P .. 'torrent_id:' .. page[2][i])
  if ih then
    local ok, v1 = pcall(note_torrent, page[2][i], P .. 't:' .. ih) -- a key of a wrong type: leave this torrent out
    if ok and v1 then halves[#halves + 1] = ih end
  end
end
write_index_entries()
return { page[1], #page[2] / 2, halves }
