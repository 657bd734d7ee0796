#!lua flags=allow-oom
-- work_lapse.lua: ends claims whose lease ended, and moves what was counted since the last call to the counters
-- `work.<project>.<what>`. It also works in a full store.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] max claims to end
-- Answer    { the number of claims that ended, how many claims without a valid record ended since the last call }; nil
--   when there is no such project
local P, call, now_ms = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/slices.lua
--@ include lib/work_claim_end.lua
--@ include lib/work_outage.lua

local names = call('ZRANGEBYSCORE', W .. ':out', '-inf', lease_clock(), 'LIMIT', 0, ARGV[3])
if #names > 0 then lapse_claims(names) end
redis.pcall('ZREMRANGEBYSCORE', W .. ':released', '-inf', now_ms)
local repaired = 0
for _, what in ipairs({ 'claimed', 'done', 'lapsed', 'released', 'repaired', 'bytes' }) do
  local v = call('HMGET', W .. ':totals', what, 'sliced_' .. what)
  local more = whole(v[1]) - whole(v[2])
  if more > 0 then
    call('HSET', W .. ':totals', 'sliced_' .. what, v[1])
    add_to_slices('work.' .. ARGV[1] .. '.' .. what, now, decimal(more))
    if what == 'repaired' then repaired = more end
  end
end
return { #names, repaired }
