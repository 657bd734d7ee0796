#!lua flags=allow-oom
-- work_extend.lua: extends the lease of a claim, and notes how far the claim came. It adds nothing, and also works in a
-- full store.
-- KEYS[1]   the prefix
-- ARGV[1]   project    ARGV[2] now (epoch ms)   ARGV[3] claimant   ARGV[4] address   ARGV[5] its network ('': none)
-- ARGV[6]   item       ARGV[7] token ('': the tracker itself asks)
-- ARGV[8]   end of the lease (epoch ms; '': as long as a new claim, and unchanged in a project that verifies)
-- ARGV[9]   state ('': unchanged)
-- Answer    end of the lease (epoch ms), '' when the claim was lost, 'blocked'; nil when there is no such project
local P, call, project = KEYS[1], redis.call, ARGV[1]
local now_ms = tonumber(ARGV[2])
local now = math.floor(now_ms / 1000)
--@ include lib/outage.lua
--@ include lib/lease_check.lua
--@ include lib/work_project.lua
--@ include lib/work_blocked.lua
--@ include lib/work_outage.lua

local fields = read_project()
if not fields then return nil end
if is_blocked(ARGV[3], ARGV[4], ARGV[5]) then return 'blocked' end
local name, token = ARGV[6] .. ' ' .. ARGV[3], ARGV[7]
local record = call('HGET', W .. ':claims', name)
if not record or token ~= '' and not has_lease(W .. ':out', name, token) then return '' end
apply_outage(fields)
local outage = now_ms - lease_clock(fields)
local claim = cjson.decode(record)
local ends = tonumber(call('ZSCORE', W .. ':out', name)) + outage
call('ZCARD', W .. ':checks')
if token == '' then
  ends = tonumber(ARGV[8]) or ends
elseif fields.verify == 'none' then
  local last = (tonumber(claim.at) or now_ms) + 86400000 * (tonumber(fields.claim_days) or 0)
  ends = math.max(ends, math.min(last, now_ms + 1000 * (tonumber(fields.lease_seconds) or 1)))
end
call('ZADD', W .. ':out', 'XX', string.format('%.0f', ends - outage), name)
if token == '' then
  claim.checked = ARGV[2]
  if ARGV[9] ~= '' then claim.state = ARGV[9] end
  call('HSET', W .. ':claims', name, cjson.encode(claim))
  if fields.verify ~= 'none' then call('ZADD', W .. ':checks', 'XX', ARGV[2], name) end
end
return string.format('%.0f', ends)
