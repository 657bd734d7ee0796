-- queue.lua: the keys and jobs of a queue. All times are epoch ms.
--
-- A job is in the index of its status, Q[status]. A job that waits (pending or retry) is also in `ready`, or in
-- `delayed` before its time, and in `deadlines` when it has a deadline.

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
