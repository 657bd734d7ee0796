#!lua flags=allow-oom
-- enqueue_slot.lua: adds a periodic job, once per slot of time for any number of trackers. It also works in a full
-- store: some of these jobs free memory, and there is at most one of each.
-- ARGV[1]   now (epoch ms)   ARGV[2] max jobs that may wait in the queue   ARGV[3] queue   ARGV[4] priority
-- ARGV[5]   1: even if the queue has another   ARGV[6] start of the slot (epoch ms)   ARGV[7] length of a slot (ms)
-- ARGV[8]   max retries   ARGV[9] fingerprint   ARGV[10] payload (JSON)
-- Answer    id and 1 when it is new; '' and 0 when it was added before, or there is no room
local P, call, now, max_waiting = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lib/queue.lua

local Q, slot = open_queue(ARGV[3]), tonumber(ARGV[6])
call('SCARD', P .. 'q')
local key = P .. 'q:' .. Q.name .. ':slot'
local last = tonumber(call('GET', key) or '')
-- A slot far ahead was written by a wrong clock.
if last and last >= slot and last <= slot + 2 * tonumber(ARGV[7]) then return { '', 0 } end
call('SET', key, ARGV[6])
return { enqueue(Q, ARGV[9], ARGV[10], priority_of(Q, ARGV[4], ARGV[5]), '', '', ARGV[8]) }
