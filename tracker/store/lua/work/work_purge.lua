#!lua flags=allow-oom
-- work_purge.lua: removes items from the queues, or from those that are done. Claims stay as they are.
-- ARGV[1]   project   ARGV[2] only from there: 'done' or a shared queue; '': from wherever they are
-- ARGV[3]   only those done before (epoch ms; '+inf': any time)   ARGV[4..] items
-- Answer    the number of items removed; nil when there is no such project
local P, call = KEYS[1], redis.call
--@ include lib/work_queues.lua

check_types()
check_own_queues(unpack(ARGV, 4))

local place, before = ARGV[2], ARGV[3] == '+inf' and math.huge or tonumber(ARGV[3])

local removed = 0
for i = 4, #ARGV do
  local item = ARGV[i]
  local done_at = (place == '' or place == 'done') and tonumber(call('ZSCORE', W .. ':done', item) or '')
  local was_done = done_at and done_at < before
  if was_done then call('ZREM', W .. ':done', item) end
  local queue, _, asked = queue_of(item)
  local is_wanted = queue and (place == '' or place == queue)
  if is_wanted then
    local wanted = tonumber(call('HGET', W .. ':wanted', item) or '1')
    dequeue_item(item, queue, asked, true)
    count_work('added', decimal(-wanted))
  end
  if was_done or is_wanted then removed = removed + 1 end
end
return removed
