#!lua flags=allow-oom
-- finish.lua: ends runs of jobs. The result is void if the lease went to another worker.
-- ARGV[1]   now (epoch ms)   ARGV[2] max finished jobs kept by queue and status
-- ARGV[3..] six each: queue, id, token, outcome, error, when to try again (epoch ms). Outcomes: completed; failed
--   (tried again while there are retries); fatal (not tried again); returned (not a run: the job goes back to its
--   place); postponed (not a run: the job goes back, but does not run before `again`)
-- Answer    for each the new status of the job, '' when the result is void, 'wrong' when a key is of a wrong type
local P, call, now, max_finished = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lib/queue.lua

local function end_run(queue, id, token, outcome, reason, again)
  local Q = open_queue(queue)
  if not has_lease(Q.running, id, token) then return '' end
  local v = read_job(id, 'retries', 'max_retries', 'priority', 'deadline', 'run_after')
  release_lease(Q.running, id)
  if not v then return '' end
  if outcome == 'completed' then return finish_job(Q, id, 'completed', '') end
  if outcome == 'failed' then return run_failed(Q, id, v, tonumber(again), reason) end
  if outcome == 'fatal' then return finish_job(Q, id, 'failed', reason) end
  local status = (tonumber(v[2] or '') or 0) > 0 and 'retry' or 'pending'
  local run_after = tonumber(outcome == 'postponed' and again or v[6] or '') or now
  call('HSET', P .. 'job:' .. id, 'status', status, 'started', '', 'run_after', run_after)
  add_waiting(Q, id, status, tonumber(v[4] or '') or 0, run_after, tonumber(v[5] or ''))
  return status
end

local answer = {}
for i = 3, #ARGV, 6 do
  local ok, status = pcall(end_run, unpack(ARGV, i, i + 5))
  answer[#answer + 1] = ok and status or 'wrong'
end
return answer
