#!lua flags=allow-oom
-- claim.lua: takes jobs to run, each under a lease, from several queues at once. First it does what time brings about:
-- takes back what lapsed, fails what is past its deadline, lets in what was delayed. What frees memory runs as jobs, so
-- this works where the store is full; it grows by a token for each job that runs.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch ms)   ARGV[2] end of the leases (epoch ms)   ARGV[3] most finished jobs kept by queue and status
-- ARGV[4..] triples: queue, most of its jobs that may run at the same time over all workers, most to take now
-- Answer    { jobs, changes, queues that could not be looked at }
--   jobs: lists of queue, id, token, payload, retries, run after (epoch ms), cursor
--   changes: pairs of queue and status, for each job that time brought there
local P, now, keep_most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[3])
--@ include lease.lua
--@ include queue.lua

local AHEAD = 3600000 -- ms that clocks may be apart
local jobs, changes, broken = {}, {}, 0

-- keep_up fails only so many at once that are past their deadline: the next of them may stand here.
local function take(Q, id, note)
  local v = read(id, 'payload', 'retries', 'run_after', 'cursor', 'deadline')
  if not v then return withdraw(Q, id) end
  if (tonumber(v[6] or '') or now + 1) <= now then return too_late(Q, id, note) end
  local token = lease(Q.running, id, ARGV[2])
  withdraw(Q, id)
  call('HSET', P .. 'job:' .. id, 'status', 'running', 'started', now)
  jobs[#jobs + 1] = { Q.name, id, token, v[2] or '', v[3] or '0', v[4] or '', v[5] or '' }
end

local function serve(queue, most_running, most)
  local Q = open(queue)
  local function note(status)
    changes[#changes + 1] = queue
    changes[#changes + 1] = status
  end
  for _, id in ipairs(mistaken(Q.running, tonumber(ARGV[2]) + AHEAD, TAKEN_BACK)) do extend(Q.running, id, now) end
  keep_up(Q, note)
  local free = math.min(most, most_running - call('ZCARD', Q.running))
  if free <= 0 then return end
  for _, id in ipairs(call('ZRANGE', Q.ready, 0, free - 1)) do take(Q, id, note) end
end

for i = 4, #ARGV, 3 do
  if not pcall(serve, ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])) then broken = broken + 1 end
end
return { jobs, changes, broken }
