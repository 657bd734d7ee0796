-- queue.lua: where a job is filed. A fragment, after `P`, `now` (epoch ms) and lease.lua; with `keep_most`, how many
-- finished jobs of one status a queue keeps. All times are in epoch ms.
--
-- A job is in the index of its status, Q[status]; one that waits (pending or retry) is also in `ready` or, before its
-- time, in `delayed`, and in `deadlines` when it has one. `ready` is claimed from its lowest score on. The score is
-- when the job may run, earlier by AGE for each point of priority: so a point is worth AGE of waiting, nothing has to
-- be computed anew as jobs grow old, and nothing that waits is overtaken for ever. A retry counts AFTER_FRESH later,
-- more than all of the priorities (-10 to 10) can make good. The fraction keeps jobs of the same ms in their order.
local call = redis.call
local AGE, AFTER_FRESH = 60000, 21 * 60000
local PROMOTED, TAKEN_BACK, TRIMMED = 500, 100, 10

-- The keys of a queue. A failed command does not undo the ones before it, so those of a wrong type fail here.
local opened = {}

local function open(queue)
  if opened[queue] then return opened[queue] end
  local at, Q = P .. 'q:' .. queue .. ':', { name = queue }
  for _, set in ipairs({ 'pending', 'running', 'retry', 'completed', 'failed', 'ready', 'delayed', 'deadlines' }) do
    Q[set] = at .. set
    call('ZCARD', Q[set])
  end
  Q.fingerprints = at .. 'fingerprints'
  call('HLEN', Q.fingerprints)
  call('HLEN', Q.running .. ':tokens')
  opened[queue] = Q
  return Q
end

-- Fields of a job; nil when it is no job (any more).
local function read(id, ...)
  local v = redis.pcall('HMGET', P .. 'job:' .. id, 'status', ...)
  if v.err or not v[1] then return nil end
  return v
end

-- The unfinished job of this payload, if there is one.
local function active(Q, fingerprint)
  local id = call('HGET', Q.fingerprints, fingerprint)
  local v = id and read(id)
  return v and v[1] ~= 'completed' and v[1] ~= 'failed' and id
end

local function make_ready(Q, id, status, priority, run_after)
  local score = run_after - priority * AGE + tonumber(id) % 1000 / 1000
  if status == 'retry' then score = score + AFTER_FRESH end
  call('ZADD', Q.ready, score, id)
end

-- A job waits from now on.
local function wait(Q, id, status, priority, run_after, deadline)
  call('ZADD', Q[status], run_after, id)
  if deadline then call('ZADD', Q.deadlines, deadline, id) end
  if run_after > now then
    call('ZADD', Q.delayed, run_after, id)
  else
    make_ready(Q, id, status, priority, run_after)
  end
end

-- It waits no more. Takes ids that are no jobs any more as well.
local function withdraw(Q, id)
  for _, set in ipairs({ 'pending', 'retry', 'ready', 'delayed', 'deadlines' }) do call('ZREM', Q[set], id) end
end

local function forget(Q, id)
  local job = P .. 'job:' .. id
  local v = read(id, 'fingerprint')
  if v and v[2] and call('HGET', Q.fingerprints, v[2]) == id then call('HDEL', Q.fingerprints, v[2]) end
  call('UNLINK', job)
end

-- A job is finished: `status` is completed or failed. The same payload is allowed again.
local function conclude(Q, id, status, reason)
  local job = P .. 'job:' .. id
  local fingerprint = call('HGET', job, 'fingerprint')
  call('HSET', job, 'status', status, 'error', reason, 'finished', now)
  if fingerprint and call('HGET', Q.fingerprints, fingerprint) == id then call('HDEL', Q.fingerprints, fingerprint) end
  call('ZADD', Q[status], now, id)
  local excess = math.min(call('ZCARD', Q[status]) - keep_most, TRIMMED)
  if excess > 0 then
    for _, old in ipairs(call('ZRANGE', Q[status], 0, excess - 1)) do
      call('ZREM', Q[status], old)
      forget(Q, old)
    end
  end
  return status
end

-- A run came to nothing. `v`: status, retries, max_retries, priority, deadline.
local function run_failed(Q, id, v, run_after, reason)
  local retries = tonumber(v[2] or '') or 0
  if retries >= (tonumber(v[3] or '') or 0) then return conclude(Q, id, 'failed', reason) end
  call('HSET', P .. 'job:' .. id, 'status', 'retry', 'retries', retries + 1, 'run_after', run_after, 'error', reason)
  wait(Q, id, 'retry', tonumber(v[4] or '') or 0, run_after, tonumber(v[5] or ''))
  return 'retry'
end

-- The deadline of one that waited has passed.
local function too_late(Q, id, note)
  local v = read(id, 'error')
  withdraw(Q, id)
  if not v then return end
  local earlier = v[2] and v[2] ~= '' and '; before that: ' .. v[2] or ''
  note(conclude(Q, id, 'failed', 'its deadline passed before it could run' .. earlier))
end

-- What time brings about, whoever looks first: leases that ended, jobs past their deadline, jobs whose time has come.
-- `note(status)` hears of each job that changed.
local function keep_up(Q, note)
  for _, id in ipairs(lapsed(Q.running, now, TAKEN_BACK)) do
    local v = read(id, 'retries', 'max_retries', 'priority', 'deadline')
    release(Q.running, id)
    if v then note(run_failed(Q, id, v, now, 'its lease ended: the worker that ran it did not come back')) end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.deadlines, '-inf', now, 'LIMIT', 0, TAKEN_BACK)) do too_late(Q, id, note) end
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.delayed, '-inf', now, 'LIMIT', 0, PROMOTED)) do
    local v = read(id, 'priority', 'run_after')
    if v then
      call('ZREM', Q.delayed, id)
      make_ready(Q, id, v[1], tonumber(v[2] or '') or 0, tonumber(v[3] or '') or now)
    else
      withdraw(Q, id)
    end
  end
end
