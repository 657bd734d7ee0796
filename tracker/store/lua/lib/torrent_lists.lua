-- torrent_lists.lua: the indexes of torrents by size, by when they were added, and by their last activity, and those of
-- disabled, of pending and of private torrents.
--@ include lib/index_entries.lua

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
