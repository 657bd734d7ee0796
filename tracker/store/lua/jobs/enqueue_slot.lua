#!lua flags=allow-oom
-- enqueue_slot.lua: adds a job that runs periodically, once in each slot of time, however many trackers see to it.
-- Where the store is full as well: what frees memory is among these jobs, and there is at most one of each.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch ms)   ARGV[2] most jobs that may wait in the queue   ARGV[3] queue
-- ARGV[4]   start of the slot (epoch ms)                                    ARGV[5] length of a slot (ms)
-- ARGV[6]   most retries     ARGV[7] fingerprint                            ARGV[8] payload (JSON)
-- Answer    id and 1 when it is new; '' and 0 when it was added before, or there is no room
local P, now, most_waiting, keep_most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), 0
--@ include lease.lua
--@ include queue.lua
--@ include enqueuing.lua

local Q, slot = open(ARGV[3]), tonumber(ARGV[4])
call('SCARD', P .. 'q')
local key = P .. 'q:' .. Q.name .. ':slot'
local last = tonumber(call('GET', key) or '')
-- One that lies well ahead was written by a clock that was wrong.
if last and last >= slot and last <= slot + 2 * tonumber(ARGV[5]) then return { '', 0 } end
call('SET', key, ARGV[4])
return { enqueue(Q, ARGV[7], ARGV[8], '0', '', '', ARGV[6]) }
