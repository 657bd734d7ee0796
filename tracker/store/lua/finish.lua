#!lua flags=allow-oom
-- finish.lua: how runs ended. The result of one whose lease went to somebody else is void.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch ms)   ARGV[2] most finished jobs kept by queue and status
-- ARGV[3..] six each: queue, id, token, outcome, error, when to try again (epoch ms). Outcomes: completed; failed (tried
--   again as long as there are retries); fatal (never again); returned (not a run: the job goes back to its place)
-- Answer    for each the status the job has now, '' when the result is void, 'wrong' when a key is of another type
local P, now, keep_most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lease.lua
--@ include queue.lua

local function put_back(Q, id, v)
  local status = tonumber(v[2] or '') and tonumber(v[2]) > 0 and 'retry' or 'pending'
  local run_after = tonumber(v[6] or '') or now
  call('HSET', P .. 'job:' .. id, 'status', status, 'started', '')
  wait(Q, id, status, tonumber(v[4] or '') or 0, run_after, tonumber(v[5] or ''))
  return status
end

local function settle(queue, id, token, outcome, reason, again)
  local Q = open(queue)
  if not holds(Q.running, id, token) then return '' end
  local v = read(id, 'retries', 'max_retries', 'priority', 'deadline', 'run_after')
  release(Q.running, id)
  if not v then return '' end
  if outcome == 'completed' then return conclude(Q, id, 'completed', '') end
  if outcome == 'failed' then return run_failed(Q, id, v, tonumber(again), reason) end
  if outcome == 'fatal' then return conclude(Q, id, 'failed', reason) end
  return put_back(Q, id, v)
end

local answer = {}
for i = 3, #ARGV, 6 do
  local ok, status = pcall(settle, unpack(ARGV, i, i + 5))
  answer[#answer + 1] = ok and status or 'wrong'
end
return answer
