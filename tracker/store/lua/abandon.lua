#!lua flags=allow-oom
-- abandon.lua: fails the jobs of a queue that nobody works on, when they have waited long enough.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch ms)   ARGV[2] most finished jobs kept by queue and status   ARGV[3] queue
-- ARGV[4]   those that could have run since then (epoch ms)                        ARGV[5] most to fail in this call
-- Answer    the statuses of the jobs that changed
local P, now, keep_most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lease.lua
--@ include queue.lua

local Q, changes = open(ARGV[3]), {}
local function note(status) changes[#changes + 1] = status end

keep_up(Q, note)
for _, waiting in ipairs({ 'pending', 'retry' }) do
  for _, id in ipairs(call('ZRANGEBYSCORE', Q[waiting], '-inf', ARGV[4], 'LIMIT', 0, ARGV[5])) do
    withdraw(Q, id)
    if read(id) then note(conclude(Q, id, 'failed', 'nobody works on this queue')) end
  end
end
return changes
