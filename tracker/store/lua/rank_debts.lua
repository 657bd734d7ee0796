#!lua
-- rank_debts.lua: writes anew how many hit and runs some users have, whatever the index said of them.
-- KEYS[1]   the prefix
-- ARGV[1..] user ids, at most some hundreds
-- Answer    how many of them could not be ranked because their set is of another type
local P, call = KEYS[1], redis.call
--@ include users.lua
local wrong = 0
for _, uid in ipairs(ARGV) do
  if not pcall(rank_debt, uid) then wrong = wrong + 1 end
end
return wrong
