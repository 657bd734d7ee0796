-- queue_finish.lua: a job is finished, or runs again later. After queue_wait.lua and queue_delete.lua; needs
-- `max_finished`, how many finished jobs of one status a queue keeps.
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
