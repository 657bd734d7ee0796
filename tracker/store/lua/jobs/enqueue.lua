#!lua
-- enqueue.lua: adds jobs to a queue; a payload that waits or runs there already stays one job.
-- ARGV[1]   now (epoch ms)   ARGV[2] max jobs that may wait in the queue   ARGV[3] queue   ARGV[4] priority (-10 to 10)
-- ARGV[5]   1: even if the queue has another   ARGV[6] run after (epoch ms; '': now)
-- ARGV[7]   deadline (epoch ms; '': none)   ARGV[8] max retries   ARGV[9..] pairs of fingerprint and payload (JSON)
-- Answer    pairs of id and 1 when it is new; an empty id for each job that the queue has no room for
local P, call, now, max_waiting = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lib/queue.lua

local Q, answer = open_queue(ARGV[3]), {}
call('SCARD', P .. 'q')
local priority = priority_of(Q, ARGV[4], ARGV[5])
for i = 9, #ARGV, 2 do
  local id, new = enqueue(Q, ARGV[i], ARGV[i + 1], priority, ARGV[6], ARGV[7], ARGV[8])
  answer[#answer + 1], answer[#answer + 2] = id, new
end
return answer
