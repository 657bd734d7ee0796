-- unlisted.lua: finds torrents that are missing in an index.
--@ include lib/torrent.lua
--@ include lib/names.lua

-- When an empty torrent became empty, as a number; nil for one that `i:empty` does not list.
local function empty_since(t)
  if t.seeders + t.leechers > 0 then return nil end
  local v = call('HMGET', t.key, 'auto', 'enabled', 'empty_since')
  return v[1] == '1' and v[2] ~= '0' and v[2] ~= 'pending' and tonumber(v[3] or '') or nil
end

-- Adds the torrent to `found` if it is missing from an index or has a wrong entry there, or if its name may differ from
-- the one in the index: info hash, id, name, the name in the index, and 0 if only the name may differ, else 1. Only
-- Python can compare the names, because it folds them.
local function note_unlisted(t, found)
  local v = call('HMGET', t.key, 'name', 'listed')
  local name, listed = string.sub(v[1] or '', 1, MAX_NAME_BYTES), v[2] or ''
  local since = empty_since(t)
  local certain = since and tonumber(call('ZSCORE', P .. 'i:empty', t.tid) or '') ~= since
    or not call('ZSCORE', P .. 'i:info_hash', t.tid)
    or listed ~= '' and not call('ZSCORE', P .. 'i:name', listed .. '\t' .. t.ih)
    or call('EXISTS', P .. 'deny:' .. t.ih) == 1 and not call('ZSCORE', P .. 'denied', t.ih)
  if not certain and string.lower(name) == listed then return end
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4], found[n + 5] = t.ih, t.tid, name, listed, certain and 1 or 0
end
