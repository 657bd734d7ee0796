-- index_entries.lua: entries of indexes that follow from fields, written once for all members (at most some hundreds):
-- of torrents by size, by when they were added and by their last activity, and of disabled, pending and private ones;
-- of users by uploaded, downloaded and ratio, and of disabled users and those who cannot leech.
--
-- Announces do not write these indexes, as that would make them dearer. Scripts that change a torrent or a user do, and
-- jobs visit all of them again and again, also for what a site writes.
local index_entries = {} -- score by index and member; false: not listed

-- Without a score the member is not listed. The last call for a member counts.
local function note_entry(index, member, score)
  index_entries[index] = index_entries[index] or {}
  index_entries[index][member] = score or false
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_index_entries()
  for index, scores in pairs(index_entries) do
    local added, removed = {}, {} -- arguments of ZADD and ZREM
    for member, score in pairs(scores) do
      local list = score and added or removed
      if score then list[#list + 1] = score end
      list[#list + 1] = member
    end
    if #added > 0 then redis.pcall('ZADD', P .. 'i:' .. index, unpack(added)) end
    if #removed > 0 then redis.pcall('ZREM', P .. 'i:' .. index, unpack(removed)) end
  end
end

-- A stored number; nil if there is none, or a program wrote another text.
local function stored_number(digits)
  return digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits) or nil
end

-- Notes a torrent by its stored fields. Returns its field hybrid_of.
local function note_torrent(tid, key)
  local v = call('HMGET', key, 'seeders', 'leechers', 'added', 'size', 'empty_since', 'enabled', 'private', 'hybrid_of')
  local added, has_peers = stored_number(v[3]) or 0, (stored_number(v[1]) or 0) + (stored_number(v[2]) or 0) > 0
  note_entry('torrent_added', tid, added)
  note_entry('torrent_active', tid, has_peers and 'inf' or stored_number(v[5]) or 0) -- active now: after all others
  note_entry('torrent_size', tid, stored_number(v[4]))
  note_entry('torrent_disabled', tid, v[6] == '0' and added)
  note_entry('torrent_pending', tid, v[6] == 'pending' and added)
  note_entry('torrent_private', tid, v[7] == '1' and added)
  return v[8]
end

local function note_rank(uid, uploaded, downloaded)
  local up, down = stored_number(uploaded) or 0, stored_number(downloaded) or 0
  note_entry('user_uploaded', uid, up)
  note_entry('user_downloaded', uid, down)
  note_entry('user_ratio', uid, down > 0 and up / down or up > 0 and 'inf' or 0)
end
