#!lua
-- rank_hit_and_runs.lua: rebuilds the index of hit-and-runs for some users, but those whose set is of a wrong type.
-- ARGV[1..] user ids, at most some hundreds
-- Answer    nothing
local P, call = KEYS[1], redis.call
--@ include lib/hit_and_runs.lua
for _, uid in ipairs(ARGV) do pcall(rank_hit_and_runs, uid) end
