#!lua
-- rank_users.lua: ranks some users by their totals.
-- KEYS[1]   the prefix
-- ARGV[1]   cursor in `users` ('0' at the start)   ARGV[2] users, approximately
-- Answer    { the next cursor, '0' at the end; how many were visited }
local P, call = KEYS[1], redis.call
--@ include lib/user_ranks.lua
local page, uids = call('ZSCAN', P .. 'users', ARGV[1], 'COUNT', ARGV[2]), {}
for i = 2, #page[2], 2 do uids[i / 2] = string.format('%.0f', tonumber(page[2][i])) end
rank_users(uids)
return { page[1], #uids }
