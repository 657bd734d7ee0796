-- queue_wait.lua: makes a job wait in its queue. Needs `now`.
--
-- Jobs are claimed from the lowest score in `ready` on. The score is when the job may run, earlier by MS_PER_PRIORITY
-- for each point of priority, so no score has to change while a job waits, and no job waits for ever. A retry comes
-- RETRY_DELAY later, which is more than the largest difference of priorities (-10 to 10). The fraction keeps jobs of
-- the same ms in order.
--@ include lib/queue.lua
local MS_PER_PRIORITY, RETRY_DELAY = 60000, 21 * 60000

local function make_ready(Q, id, status, priority, run_after)
  local score = run_after - priority * MS_PER_PRIORITY + tonumber(id) % 1000 / 1000
  if status == 'retry' then score = score + RETRY_DELAY end
  call('ZADD', Q.ready, score, id)
end

local function add_waiting(Q, id, status, priority, run_after, deadline)
  call('ZADD', Q[status], run_after, id)
  if deadline then call('ZADD', Q.deadlines, deadline, id) end
  if run_after > now then
    call('ZADD', Q.delayed, run_after, id)
  else
    make_ready(Q, id, status, priority, run_after)
  end
end
