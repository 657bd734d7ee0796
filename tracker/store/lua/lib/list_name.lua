-- list_name.lua: lists a torrent or a user by name.
--@ include lib/names.lua

-- `key`: the hash, whose field `listed` follows. `folded` '' removes the entry.
local function list_name(key, index, id, folded)
  local listed = call('HGET', key, 'listed')
  if folded ~= '' then
    if listed ~= folded then call('HSET', key, 'listed', folded) end
  elseif listed then
    call('HDEL', key, 'listed')
  end
  index_name(index, id, listed, folded)
end
