#!lua flags=allow-oom
-- purge.lua: deletes jobs of a queue that do not run.
-- ARGV[1]   queue   ARGV[2] status (not running)   ARGV[3] max jobs to delete
-- ARGV[4]   only finished jobs that finished by then (epoch ms), or waiting ones that may run by then; '+inf': all
-- Answer    the number deleted
local P, call = KEYS[1], redis.call
--@ include lib/queue.lua

local Q, status = open_queue(ARGV[1]), ARGV[2]
local found = call('ZRANGEBYSCORE', Q[status], '-inf', ARGV[4], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(found) do
  withdraw(Q, id)
  call('ZREM', Q[status], id)
  delete_job(Q, id)
end
return #found
