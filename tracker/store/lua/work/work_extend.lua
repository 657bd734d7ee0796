#!lua flags=allow-oom
-- work_extend.lua: extends the lease of a claim for a claimant who asks for more time, also in a full store.
-- ARGV[1]   project    ARGV[2] now (epoch ms)   ARGV[3] claimant   ARGV[4] address   ARGV[5] its network ('': none)
-- ARGV[6]   item       ARGV[7] token
-- Answer    end of the lease (epoch ms), '' when the claim was lost, 'blocked'; nil when there is no such project
local P, call, now_ms = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/leases.lua
--@ include lib/work_project.lua
--@ include lib/work_outage.lua

if is_blocked(ARGV[3], ARGV[4], ARGV[5]) then return 'blocked' end
local name = ARGV[6] .. ' ' .. ARGV[3]
if not has_lease(W .. ':out', name, ARGV[7]) then return '' end
local claim = record_of(call('HGET', W .. ':claims', name))
local outage = now_ms - lease_clock()
local ends = tonumber(call('ZSCORE', W .. ':out', name)) + outage
if project.verify == 'none' and claim then -- else work_verify.lua decides
  local since = tonumber(claim.at) and claim.at - (tonumber(claim.outage) or 0) or now_ms - outage
  local last = since + outage + 86400000 * (tonumber(project.claim_days) or 0)
  ends = math.max(ends, math.min(last, now_ms + 1000 * (tonumber(project.lease_seconds) or 1)))
  call('ZADD', W .. ':out', 'XX', string.format('%.0f', ends - outage), name)
end
return string.format('%.0f', ends)
