#!lua
-- enqueue.lua: adds jobs to a queue; a payload that waits or runs there already stays one job.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch ms)         ARGV[2] most jobs that may wait in the queue   ARGV[3] queue
-- ARGV[4]   priority (-10 to 10)   ARGV[5] run after (epoch ms; '': now)          ARGV[6] deadline (epoch ms; '': none)
-- ARGV[7]   most retries
-- ARGV[8..] pairs of fingerprint and payload (JSON)
-- Answer    pairs of id and 1 when it is new; an empty id for those that the queue has no room for
local P, now, most_waiting, keep_most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), 0
--@ include lease.lua
--@ include queue.lua
--@ include enqueuing.lua

local Q, answer = open(ARGV[3]), {}
call('SCARD', P .. 'q')
for i = 8, #ARGV, 2 do
  local id, new = enqueue(Q, ARGV[i], ARGV[i + 1], ARGV[4], ARGV[5], ARGV[6], ARGV[7])
  answer[#answer + 1], answer[#answer + 2] = id, new
end
return answer
