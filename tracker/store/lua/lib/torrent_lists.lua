-- torrent_lists.lua: the indexes of torrents by size, by when they were added, and by their last activity, and those of
-- disabled, of pending and of private torrents.
--
-- Announces do not write these indexes, as that would make them dearer. Scripts that change a torrent do, and a job
-- ranks all torrents again and again.

local LISTED = { 'seeders', 'leechers', 'added', 'size', 'empty_since', 'enabled', 'private', 'hybrid_of' }
local entries = { added = {}, active = {}, size = {}, disabled = {}, pending = {}, private = {} }
local missing = { size = {}, disabled = {}, pending = {}, private = {} }

local function whole_of(digits)
  return digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits) or nil
end

-- A torrent with peers is active now: it comes after all others.
local function activity_of(v)
  if (whole_of(v[1]) or 0) + (whole_of(v[2]) or 0) > 0 then return 'inf' end
  return whole_of(v[5]) or 0
end

local function note(index, tid, score)
  local list = score and entries[index] or missing[index]
  if not list then return end
  if score then list[#list + 1] = score end
  list[#list + 1] = tid
end

-- Notes a torrent by its stored fields. At most some hundreds in one call of a script. Returns its field hybrid_of.
local function note_torrent(tid, key)
  local v = call('HMGET', key, unpack(LISTED))
  local added = whole_of(v[3]) or 0
  note('added', tid, added)
  note('active', tid, activity_of(v))
  note('size', tid, whole_of(v[4]))
  note('disabled', tid, v[6] == '0' and added)
  note('pending', tid, v[6] == 'pending' and added)
  note('private', tid, v[7] == '1' and added)
  return v[8]
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_lists()
  for index, list in pairs(entries) do
    if #list > 0 then redis.pcall('ZADD', P .. 'i:torrent_' .. index, unpack(list)) end
  end
  for index, list in pairs(missing) do
    if #list > 0 then redis.pcall('ZREM', P .. 'i:torrent_' .. index, unpack(list)) end
  end
end
