-- user_id_check.lua: whether a text, or an id that a site wrote, can be a user id.

local function is_user_id(id)
  return #id <= 15 and string.find(id, '^[1-9]%d*$') ~= nil
end

local function is_listed(id, holder)
  return tonumber(call('ZSCORE', P .. 'users', holder) or '') == tonumber(id)
end

-- True when the id belongs to another passkey: one that is listed with it, or the one in the user's totals.
local function is_of_another(id, holder)
  if is_listed(id, holder) then return false end
  local holders = call('ZRANGE', P .. 'users', id, id, 'BYSCORE', 'LIMIT', 0, 10)
  holders[#holders + 1] = call('HGET', P .. 'u:' .. id, 'passkey') or nil
  for _, other in ipairs(holders) do
    if other ~= holder and call('HGET', P .. 'user:' .. other, 'user_id') == id then return true end
  end
  return false
end
