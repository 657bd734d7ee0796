-- names.lua: the index of torrents by name. After `P` and `call`.
--
-- `i:name` holds `<folded name>TAB<info hash>` of each torrent that has a name. Python folds names, as Lua folds only
-- ASCII. The torrent's field `listed` is the name as it is in the index, so that the entry can be found again.

-- `folded` '' removes the entry. An index of a wrong type only means that the entry is missing.
local function list_name(ih, folded)
  local key = P .. 't:' .. ih
  local listed = call('HGET', key, 'listed')
  if listed and listed ~= folded then redis.pcall('ZREM', P .. 'i:name', listed .. '\t' .. ih) end
  if folded ~= '' then
    call('HSET', key, 'listed', folded)
    redis.pcall('ZADD', P .. 'i:name', 0, folded .. '\t' .. ih)
  elseif listed then
    call('HDEL', key, 'listed')
  end
end
