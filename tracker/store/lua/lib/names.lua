-- names.lua: the indexes of torrents and users by name, `i:name` and `i:user_name`.
--
-- An index holds `<folded name>TAB<id>` of each that has a name; the id is an info hash or a user id. Python folds
-- names, as Lua folds only ASCII. The field `listed` of the hash is the name as it is in the index, so that the entry
-- can be found again.
local MAX_NAME_BYTES = 1020 -- how much of a name is indexed: 255 characters of four bytes

-- Replaces the entry of `listed` (nil or false: none) by that of `folded` ('': none). The caller writes the field
-- `listed`. An index of a wrong type only means that the entry is missing.
local function index_name(index, id, listed, folded)
  if listed and listed ~= folded then redis.pcall('ZREM', index, listed .. '\t' .. id) end
  if folded ~= '' then redis.pcall('ZADD', index, 0, folded .. '\t' .. id) end
end

-- Lists a torrent or a user. `key`: the hash, whose field `listed` follows. `folded` '' removes the entry.
local function list_name(key, index, id, folded)
  local listed = call('HGET', key, 'listed')
  if folded ~= '' then
    if listed ~= folded then call('HSET', key, 'listed', folded) end
  elseif listed then
    call('HDEL', key, 'listed')
  end
  index_name(index, id, listed, folded)
end

-- The same if the stored name, up to MAX_NAME_BYTES, is still the one that was folded.
local function list_if_unchanged(key, index, id, name, folded)
  if string.sub(call('HGET', key, 'name') or '', 1, MAX_NAME_BYTES) == name then list_name(key, index, id, folded) end
end
