-- user_names.lua: the index of users by display name. After `P` and `call`.
--
-- `i:user_name` holds `<folded name>TAB<user id>` of each user who has a name. Python folds names, as Lua folds only
-- ASCII. The field `listed` of `u:<uid>` is the name as it is in the index, so that the entry can be found again.

-- `folded` '' removes the entry. An index of a wrong type only means that the entry is missing.
local function list_user_name(uid, folded)
  local key = P .. 'u:' .. uid
  local listed = call('HGET', key, 'listed')
  if listed and listed ~= folded then redis.pcall('ZREM', P .. 'i:user_name', listed .. '\t' .. uid) end
  if folded ~= '' then
    call('HSET', key, 'listed', folded)
    redis.pcall('ZADD', P .. 'i:user_name', 0, folded .. '\t' .. uid)
  elseif listed then
    call('HDEL', key, 'listed')
  end
end
