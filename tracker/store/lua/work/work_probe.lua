#!lua flags=allow-oom
-- work_probe.lua: notes what a connection to a claimant's peer has shown. The second failure in a row ends the claim
-- for good: it is not verified late. It adds little, and also works in a full store.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] item   ARGV[4] claimant
-- ARGV[5]   'confirmed', 'failed' or 'unknown'
-- Answer    1 when the claim ended, else 0; nil when there is no such project
local P, call, now_ms = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/work_claim_end.lua

local MAX_FAILURES = 2
local name = ARGV[3] .. ' ' .. ARGV[4]
local claim, key = find_claim(name)
if not claim then return 0 end
check_types()
claim.probe, claim.probed = ARGV[5], ARGV[2]
if ARGV[5] == 'failed' then claim.failures = whole(claim.failures) + 1 end
if ARGV[5] == 'confirmed' then claim.failures = nil end
if whole(claim.failures) < MAX_FAILURES then
  call('HSET', key, name, cjson.encode(claim))
  return 0
end
if key == W .. ':claims' then lapse(name) end
call('HDEL', W .. ':lapsed:claims', name)
call('ZREM', W .. ':checks', name)
return 1
