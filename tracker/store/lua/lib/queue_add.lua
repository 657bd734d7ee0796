-- queue_add.lua: adds a job to a queue. Needs `max_waiting`, how many jobs of a queue may wait.
--@ include lib/numbers.lua
--@ include lib/queue_wait.lua

-- The priority of new jobs: that of the caller if it is `own`, else what the store has for the queue goes first.
local function priority_of(Q, priority, own)
  return own ~= '1' and tonumber(call('HGET', P .. 'q:' .. Q.name .. ':limits', 'priority') or '') or priority
end

-- Returns the id and 1; the id and 0 of a job with the same payload that waits or runs; '' and 0 when too many wait.
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
