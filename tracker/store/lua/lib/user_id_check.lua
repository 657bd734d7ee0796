-- user_id_check.lua: whether an id that a site wrote can be a user's. After `P` and `call`.

--@ include lib/user_id_form.lua

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
