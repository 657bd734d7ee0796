#!lua
-- rank_debts.lua: writes anew how many hit and runs some users have, whatever the index said of them.
-- KEYS[1]   the prefix   ARGV[1..] user ids, at most some hundreds
local P, call = KEYS[1], redis.call
--@ include users.lua
for _, uid in ipairs(ARGV) do pcall(rank_debt, uid) end
return redis.status_reply('OK')
