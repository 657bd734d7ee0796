-- user_id_form.lua: whether a text has the form of a user id.

local function is_user_id(id)
  return #id <= 15 and string.find(id, '^[1-9]%d*$') ~= nil
end
