#!lua flags=allow-oom
-- claim.lua: takes jobs to run, each under a lease, from several queues at once. First it applies changes that are due
-- by time: lapsed leases, passed deadlines, delayed jobs. Jobs free memory, so this also works in a full store; it adds
-- only a token for each running job.
-- ARGV[1]   now (epoch ms)   ARGV[2] end of the leases (epoch ms)   ARGV[3] max finished jobs kept by queue and status
-- ARGV[4..] triples: queue, max jobs of it that run at the same time on all workers, unless the queue has another
--           limit; how many of these the worker itself does not run
-- Answer    { jobs, changes, queues that failed }
--   jobs: lists of queue, id, token, payload, retries, run after (epoch ms), cursor
--   changes: pairs of queue and status, for each job that changed by time
local P, call, now, max_finished = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[3])
--@ include lib/queue.lua

local MAX_CLOCK_SKEW = 3600000 -- ms that clocks of trackers may differ
local MAX_TAKEN = 500
local jobs, changes, failed = {}, {}, 0

-- update_queue() fails a limited number of late jobs at once: the next late job may come here.
local function take(Q, id, note)
  local v = read_job(id, 'payload', 'retries', 'run_after', 'cursor', 'deadline')
  if not v then return withdraw(Q, id) end
  if (tonumber(v[6] or '') or now + 1) <= now then return fail_late(Q, id, note) end
  local token = take_lease(Q.running, id, ARGV[2])
  withdraw(Q, id)
  call('HSET', P .. 'job:' .. id, 'status', 'running', 'started', now)
  jobs[#jobs + 1] = { Q.name, id, token, v[2] or '', v[3] or '0', v[4] or '', v[5] or '' }
end

local function serve(queue, max_running, free_here)
  local Q = open_queue(queue)
  local function note(status)
    changes[#changes + 1] = queue
    changes[#changes + 1] = status
  end
  for _, id in ipairs(leases_beyond(Q.running, tonumber(ARGV[2]) + MAX_CLOCK_SKEW, MAX_EXPIRED)) do
    call('ZADD', Q.running, 'XX', now, id)
  end
  update_queue(Q, note)
  local own = tonumber(call('HGET', P .. 'q:' .. queue .. ':limits', 'concurrency') or '') or max_running
  local free = math.min(free_here + own - max_running, own - call('ZCARD', Q.running), MAX_TAKEN)
  if free <= 0 then return end
  for _, id in ipairs(call('ZRANGE', Q.ready, 0, free - 1)) do take(Q, id, note) end
end

for i = 4, #ARGV, 3 do
  if not pcall(serve, ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])) then failed = failed + 1 end
end
return { jobs, changes, failed }
