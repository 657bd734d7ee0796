#!lua
-- name_users.lua: lists users by names that a site wrote.
-- ARGV      three for each: user id, the name when it was folded (the first 1020 bytes), and the folded name. A user
--   whose name has changed since is skipped: the program that changed it lists it, or the next walk does
-- Answer    how many failed
local P, call = KEYS[1], redis.call
--@ include lib/names.lua

local function list(uid, name, folded)
  local key = P .. 'u:' .. uid
  if string.sub(call('HGET', key, 'name') or '', 1, MAX_NAME_BYTES) == name then
    list_name(key, P .. 'i:user_name', uid, folded)
  end
end

local failed = 0
for i = 1, #ARGV, 3 do
  if not pcall(list, unpack(ARGV, i, i + 2)) then failed = failed + 1 end
end
return failed
