-- queue.lua: the keys and jobs of a queue. All times are epoch ms.
--
-- A job is in the index of its status, Q[status]. A job that waits (pending or retry) is also in `ready`, or in
-- `delayed` before its time, and in `deadlines` when it has a deadline.
--
-- Jobs are claimed from the lowest score in `ready` on. The score is when the job may run, earlier by MS_PER_PRIORITY
-- for each point of priority, so no score has to change while a job waits, and no job waits for ever. A retry comes
-- RETRY_DELAY later, which is more than the largest difference of priorities (-10 to 10). The fraction keeps jobs of
-- the same ms in order.
--@ include lib/leases.lua
--@ include lib/numbers.lua
local MS_PER_PRIORITY, RETRY_DELAY = 60000, 21 * 60000
local MAX_DELETED, MAX_PROMOTED, MAX_EXPIRED = 10, 500, 100 -- jobs in one call

-- The keys of a queue. A failed command does not undo those before it, so a key of a wrong type fails here.
local open_queues = {}

local function open_queue(queue)
  if open_queues[queue] then return open_queues[queue] end
  local at, Q = P .. 'q:' .. queue .. ':', { name = queue }
  for _, set in ipairs({ 'pending', 'running', 'retry', 'completed', 'failed', 'ready', 'delayed', 'deadlines' }) do
    Q[set] = at .. set
    call('ZCARD', Q[set])
  end
  Q.fingerprints = at .. 'fingerprints'
  call('HLEN', Q.fingerprints)
  call('HLEN', Q.running .. ':tokens')
  open_queues[queue] = Q
  return Q
end

-- The status of a job, then the fields asked for; nil when there is no such job.
local function read_job(id, ...)
  local v = redis.pcall('HMGET', P .. 'job:' .. id, 'status', ...)
  if v.err or not v[1] then return nil end
  return v
end

-- A job waits no longer. Also removes ids of deleted jobs.
local function withdraw(Q, id)
  for _, set in ipairs({ 'pending', 'retry', 'ready', 'delayed', 'deadlines' }) do call('ZREM', Q[set], id) end
end

local function delete_job(Q, id)
  local v = read_job(id, 'fingerprint')
  if v and v[2] and call('HGET', Q.fingerprints, v[2]) == id then call('HDEL', Q.fingerprints, v[2]) end
  call('UNLINK', P .. 'job:' .. id)
end

-- The id of the unfinished job with this fingerprint; nil or false when there is none.
local function find_unfinished(Q, fingerprint)
  local id = call('HGET', Q.fingerprints, fingerprint)
  local v = id and read_job(id)
  return v and v[1] ~= 'completed' and v[1] ~= 'failed' and id
end

-- luacheck: push ignore 113 (not every script adds or finishes jobs)
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

-- The priority of new jobs: that of the caller if it is `own`, else what the store has for the queue goes first.
local function priority_of(Q, priority, own)
  return own ~= '1' and tonumber(call('HGET', P .. 'q:' .. Q.name .. ':limits', 'priority') or '') or priority
end

-- Returns the id and 1; the id and 0 of a job with the same payload that waits or runs; '' and 0 when `max_waiting`
-- jobs wait.
local function enqueue(Q, fingerprint, payload, priority, run_after, deadline, max_retries)
  local known = find_unfinished(Q, fingerprint)
  if known then return known, 0 end
  if call('ZCARD', Q.pending) + call('ZCARD', Q.retry) >= max_waiting then return '', 0 end
  local id = string.format('%.0f', call('INCR', P .. 'job'))
  -- A time in the past counts as now: else the job would overtake all others.
  run_after = math.min(math.max(now, tonumber(run_after) or now), MAX_EXACT)
  deadline = tonumber(deadline)
  call('UNLINK', P .. 'job:' .. id)
  call('HSET', P .. 'job:' .. id, 'id', id, 'queue', Q.name, 'status', 'pending', 'fingerprint', fingerprint,
    'payload', payload, 'retries', 0, 'max_retries', max_retries, 'priority', priority, 'run_after', run_after,
    'deadline', deadline or '', 'error', '', 'cursor', '', 'created', now, 'started', '', 'finished', '')
  call('HSET', Q.fingerprints, fingerprint, id)
  call('SADD', P .. 'q', Q.name)
  add_waiting(Q, id, 'pending', tonumber(priority), run_after, deadline)
  return id, 1
end

-- `status` is completed or failed. The same payload may be queued again. `max_finished`: how many finished jobs of one
-- status a queue keeps.
local function finish_job(Q, id, status, reason)
  local job = P .. 'job:' .. id
  local fingerprint = call('HGET', job, 'fingerprint')
  call('HSET', job, 'status', status, 'error', reason, 'finished', now)
  if fingerprint and call('HGET', Q.fingerprints, fingerprint) == id then call('HDEL', Q.fingerprints, fingerprint) end
  call('ZADD', Q[status], now, id)
  local excess = math.min(call('ZCARD', Q[status]) - max_finished, MAX_DELETED)
  local old = excess > 0 and call('ZPOPMIN', Q[status], excess) or {}
  for i = 1, #old, 2 do delete_job(Q, old[i]) end
  return status
end

-- A run failed. `v`: status, retries, max_retries, priority, deadline. Returns the new status.
local function run_failed(Q, id, v, run_after, reason)
  local retries = tonumber(v[2] or '') or 0
  if retries >= (tonumber(v[3] or '') or 0) then return finish_job(Q, id, 'failed', reason) end
  call('HSET', P .. 'job:' .. id, 'status', 'retry', 'retries', retries + 1, 'run_after', run_after, 'error', reason)
  add_waiting(Q, id, 'retry', tonumber(v[4] or '') or 0, run_after, tonumber(v[5] or ''))
  return 'retry'
end

-- Fails a waiting job whose deadline has passed.
local function fail_late(Q, id, note)
  local v = read_job(id, 'error')
  withdraw(Q, id)
  if not v then return end
  local earlier = v[2] and v[2] ~= '' and '; before that: ' .. v[2] or ''
  note(finish_job(Q, id, 'failed', 'its deadline passed before it could run' .. earlier))
end

-- Ends leases that have lapsed, fails jobs past their deadline, and makes jobs ready whose time has come. Calls
-- `note(status)` for each job that changed.
local function update_queue(Q, note)
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.running, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    local v = read_job(id, 'retries', 'max_retries', 'priority', 'deadline')
    release_lease(Q.running, id)
    if v then note(run_failed(Q, id, v, now, 'lease expired: the worker stopped responding')) end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.deadlines, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    fail_late(Q, id, note)
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.delayed, '-inf', now, 'LIMIT', 0, MAX_PROMOTED)) do
    local v = read_job(id, 'priority', 'run_after')
    if v then
      call('ZREM', Q.delayed, id)
      make_ready(Q, id, v[1], tonumber(v[2] or '') or 0, tonumber(v[3] or '') or now)
    else
      withdraw(Q, id)
    end
  end
end
-- luacheck: pop
