#!lua
-- name_users.lua: lists users by names that a site wrote.
-- ARGV      three for each: user id, the name when it was folded (the first 1020 bytes), and the folded name. A user
--   whose name has changed since is skipped: the program that changed it lists it, or the next walk does
-- Answer    how many failed
local P, call = KEYS[1], redis.call
--@ include lib/names.lua

local failed = 0
for i = 1, #ARGV, 3 do
  local uid = ARGV[i]
  local ok = pcall(list_if_unchanged, P .. 'u:' .. uid, P .. 'i:user_name', uid, ARGV[i + 1], ARGV[i + 2])
  if not ok then failed = failed + 1 end
end
return failed
