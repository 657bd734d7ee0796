-- enqueuing.lua: a new job. A fragment, after queue.lua, and `most_waiting`, how many jobs of a queue may wait.

local MAX = 9007199254740991

-- The answer is its id and 1; of a job that waits or runs already its id and 0; '' and 0 when too many wait.
local function enqueue(Q, fingerprint, payload, priority, run_after, deadline, max_retries)
  local known = active(Q, fingerprint)
  if known then return known, 0 end
  if call('ZCARD', Q.pending) + call('ZCARD', Q.retry) >= most_waiting then return '', 0 end
  local id = string.format('%.0f', call('INCR', P .. 'job'))
  -- What asks to run in the past has waited since now, or it would overtake everybody.
  run_after = math.min(math.max(now, tonumber(run_after) or now), MAX)
  deadline = tonumber(deadline)
  call('UNLINK', P .. 'job:' .. id)
  call('HSET', P .. 'job:' .. id, 'id', id, 'queue', Q.name, 'status', 'pending', 'fingerprint', fingerprint, 'payload', payload,
    'retries', 0, 'max_retries', max_retries, 'priority', priority, 'run_after', run_after, 'deadline', deadline or '',
    'error', '', 'cursor', '', 'created', now, 'started', '', 'finished', '')
  call('HSET', Q.fingerprints, fingerprint, id)
  call('SADD', P .. 'q', Q.name)
  wait(Q, id, 'pending', tonumber(priority), run_after, deadline)
  return id, 1
end
