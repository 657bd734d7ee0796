#!lua flags=no-writes
-- list_torrents.lua: walks through an index of torrents, in its order, and selects those that match.
-- ARGV[1]   the index, such as seeders, name or torrent_size   ARGV[2] '1': descending
-- ARGV[3]   position to begin at (0: the first)   ARGV[4] torrents to look at   ARGV[5] max results
-- ARGV[6]   enabled: '0', '1', 'pending', or '' for all   ARGV[7] private, ARGV[8] has seeders: '0', '1', or ''
-- ARGV[9]   part of the name, folded ('' any name)   ARGV[10] info hashes that begin with this are left out ('' none);
--   both only with the index name
-- Answer    { position to go on at (-1: that was the last), for each result: info hash, position after it, and its
--   score (of the index name: the entry) }
local P, call, order, max_found = KEYS[1], redis.call, ARGV[1], tonumber(ARGV[5])
local enabled, private, seeded, part, left_out = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local index, by_name = P .. 'i:' .. order, order == 'name'

local function fits(wanted, is)
  return wanted == '' or is == (wanted == '1')
end

-- The info hash of an entry that matches, else nil.
local function matching(entry)
  local ih
  if by_name then
    local _, last = string.find(entry, part, 1, true) -- the first place: after the name only if it is not in the name
    if not last or last >= #entry - 40 then return end
    ih = string.sub(entry, -40)
    if left_out ~= '' and string.sub(ih, 1, #left_out) == left_out then return end
  else
    ih = call('GET', P .. 'torrent_id:' .. entry)
    if not ih then return end
  end
  if enabled == '' and private == '' and seeded == '' then return ih end
  local v = call('HMGET', P .. 't:' .. ih, 'enabled', 'private', 'seeders')
  local state = (v[1] == '0' or v[1] == 'pending') and v[1] or '1'
  return (enabled == '' or enabled == state) and fits(private, v[2] == '1')
    and fits(seeded, (tonumber(v[3]) or 0) > 0) and ih
end

local position, found = tonumber(ARGV[3]), {}
local range = { index, position, position + tonumber(ARGV[4]) - 1 }
if ARGV[2] == '1' then range[4] = 'REV' end
if not by_name then range[#range + 1] = 'WITHSCORES' end
local size, rows = call('ZCARD', index), call('ZRANGE', unpack(range))
for i = 1, #rows, by_name and 1 or 2 do
  if #found == 3 * max_found then break end
  position = position + 1
  local readable, ih = pcall(matching, rows[i]) -- a key of a wrong type: leave this torrent out
  if readable and ih then
    local n = #found
    found[n + 1], found[n + 2], found[n + 3] = ih, position, by_name and rows[i] or rows[i + 1]
  end
end
return { position < size and position or -1, found }
