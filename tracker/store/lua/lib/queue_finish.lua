-- queue_finish.lua: jobs that are finished, or run again later, and changes that are due by time. Needs `max_finished`,
-- how many finished jobs of one status a queue keeps.
--@ include lib/leases.lua
--@ include lib/queue_wait.lua

local MAX_DELETED = 10 -- finished jobs that are deleted at once

-- `status` is completed or failed. The same payload may be queued again.
local function finish_job(Q, id, status, reason)
  local job = P .. 'job:' .. id
  local fingerprint = call('HGET', job, 'fingerprint')
  call('HSET', job, 'status', status, 'error', reason, 'finished', now)
  if fingerprint and call('HGET', Q.fingerprints, fingerprint) == id then call('HDEL', Q.fingerprints, fingerprint) end
  call('ZADD', Q[status], now, id)
  local excess = math.min(call('ZCARD', Q[status]) - max_finished, MAX_DELETED)
  if excess > 0 then
    for _, old in ipairs(call('ZRANGE', Q[status], 0, excess - 1)) do
      call('ZREM', Q[status], old)
      delete_job(Q, old)
    end
  end
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

local MAX_PROMOTED, MAX_EXPIRED = 500, 100

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
