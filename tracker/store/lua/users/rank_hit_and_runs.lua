#!lua
-- rank_hit_and_runs.lua: rebuilds the index of hit-and-runs for some users.
-- ARGV[1..] user ids, at most some hundreds
-- Answer    how many could not be ranked because their set is of a wrong type
local P, call = KEYS[1], redis.call
--@ include lib/hit_and_runs.lua
local wrong = 0
for _, uid in ipairs(ARGV) do
  if not pcall(rank_hit_and_runs, uid) then wrong = wrong + 1 end
end
return wrong
