#!lua
-- retry.lua: runs a failed job again with all of its retries, or a job that waits to retry at once.
-- ARGV[1]   now (epoch ms)   ARGV[2] id
-- Answer    'pending' when it is done; else its status, unchanged; 'unknown'; or the id of the same job in the queue
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/queue.lua

local id = ARGV[2]
local v = read_job(id, 'queue', 'fingerprint', 'priority', 'deadline')
if not v or not v[2] then return 'unknown' end
if v[1] ~= 'failed' and v[1] ~= 'retry' then return v[1] .. ' already' end

local Q, fingerprint = open_queue(v[2]), v[3] or ''
local same = find_unfinished(Q, fingerprint)
if same and same ~= id then return same end
local deadline = tonumber(v[5] or '')
if deadline and deadline <= now then deadline = nil end
withdraw(Q, id)
call('ZREM', Q.failed, id)
call('HSET', P .. 'job:' .. id, 'status', 'pending', 'retries', 0, 'run_after', now, 'deadline', deadline or '',
  'finished', '')
call('HSET', Q.fingerprints, fingerprint, id)
add_waiting(Q, id, 'pending', tonumber(v[4] or '') or 0, now, deadline)
return 'pending'
