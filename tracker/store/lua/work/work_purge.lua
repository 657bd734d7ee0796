#!lua flags=allow-oom
-- work_purge.lua: removes items from the queues, or from those that are done. Claims stay as they are.
-- KEYS[1]   the prefix
-- ARGV[1]   project
-- ARGV[2..] items
-- Answer    the number of items removed; nil when there is no such project
local P, call, project = KEYS[1], redis.call, ARGV[1]
local COUNTER_MAX = '9223372036854775807' -- what Redis counts to
--@ include lib/numbers.lua
--@ include lib/counters.lua
--@ include lib/work_project.lua
--@ include lib/work_types.lua
--@ include lib/work_counts.lua
--@ include lib/work_queues.lua
--@ include lib/work_dequeue.lua
--@ include lib/work_queue_of.lua

if not read_project() then return nil end
check_types()

local removed = 0
for i = 2, #ARGV do
  local item = ARGV[i]
  local queue, _, asked = queue_of(item)
  local was_done = call('ZREM', W .. ':done', item)
  if queue then
    local wanted = tonumber(call('HGET', W .. ':wanted', item) or '1')
    dequeue_item(item, queue, asked, true)
    count_work('added', decimal(-wanted))
  end
  if queue or was_done == 1 then removed = removed + 1 end
end
return removed
