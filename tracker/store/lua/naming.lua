-- naming.lua: the names that torrents are found by. A fragment, after swarm.lua.
--
-- `i:name` holds `<folded name>TAB<info hash>` of every torrent that has a name. Folding is Python's (Lua knows the cases of
-- ASCII alone); the torrent's field `listed` is its name as it is folded there, so that the entry can be found again.

local LONGEST_NAME = 1020 -- bytes that are looked at: 255 characters, whichever they are

local function name_entry(folded, ih)
  return folded .. '\t' .. ih
end

-- '' is no name. What is in the way of the index costs nobody a torrent: its entry is missing, no more.
local function list_name(ih, folded)
  local key = P .. 't:' .. ih
  local listed = call('HGET', key, 'listed')
  if listed and listed ~= folded then redis.pcall('ZREM', P .. 'i:name', name_entry(listed, ih)) end
  if folded ~= '' then
    call('HSET', key, 'listed', folded)
    redis.pcall('ZADD', P .. 'i:name', 0, name_entry(folded, ih))
  elseif listed then
    call('HDEL', key, 'listed')
  end
end

-- Adds to `found` what is needed to list a torrent, when it is not, or may not be, listed as it should: info hash, id,
-- name, the name it is listed by, and whether there is anything to do even if that is its name folded.
local function note_unlisted(t, found)
  local v = call('HMGET', t.key, 'name', 'listed')
  local name, listed = string.sub(v[1] or '', 1, LONGEST_NAME), v[2] or ''
  local certain = not call('ZSCORE', P .. 'i:info_hash', t.tid)
    or listed ~= '' and not call('ZSCORE', P .. 'i:name', name_entry(listed, t.ih))
    or call('EXISTS', P .. 'deny:' .. t.ih) == 1 and not call('ZSCORE', P .. 'denied', t.ih)
  if not certain and string.lower(name) == listed then return end
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4], found[n + 5] = t.ih, t.tid, name, listed, certain and 1 or 0
end
