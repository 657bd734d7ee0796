#!lua flags=allow-oom
-- abandon.lua: fails jobs that have waited too long in a queue without a worker.
-- ARGV[1]   now (epoch ms)   ARGV[2] max finished jobs kept by queue and status   ARGV[3] queue
-- ARGV[4]   fail jobs that could have run since then (epoch ms)                   ARGV[5] max jobs to fail in this call
-- Answer    the statuses of the jobs that changed
local P, call, now, max_finished = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lib/queue.lua

local Q, changes = open_queue(ARGV[3]), {}
local function note(status) changes[#changes + 1] = status end

update_queue(Q, note)
for _, waiting in ipairs({ 'pending', 'retry' }) do
  for _, id in ipairs(call('ZRANGEBYSCORE', Q[waiting], '-inf', ARGV[4], 'LIMIT', 0, ARGV[5])) do
    withdraw(Q, id)
    if read_job(id) then note(finish_job(Q, id, 'failed', 'no worker serves this queue')) end
  end
end
return changes
