#!lua
-- name_users.lua: lists users by names that a site wrote.
-- ARGV      three for each: user id, the name when it was folded (the first 1020 bytes), and the folded name. A user
--   whose name has changed since is skipped: the program that changed it lists it, or the next walk does
-- Answer    nothing
local P, call = KEYS[1], redis.call
--@ include lib/names.lua

for i = 1, #ARGV, 3 do -- a key of a wrong type: leave this user out
  pcall(list_if_unchanged, P .. 'u:' .. ARGV[i], P .. 'i:user_name', ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
