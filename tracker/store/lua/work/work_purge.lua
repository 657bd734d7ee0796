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

local function remove_done(item)
  local at = (place == '' or place == 'done') and tonumber(call('ZSCORE', W .. ':done', item) or '')
  if not at or at >= before then return false end
  call('ZREM', W .. ':done', item)
  return true
end

local function remove_wanted(item)
  local queue, _, asked = queue_of(item)
  if not queue or place ~= '' and place ~= queue then return false end
  local wanted = tonumber(call('HGET', W .. ':wanted', item) or '1')
  dequeue_item(item, queue, asked, true)
  count_work('added', decimal(-wanted))
  return true
end

local removed = 0
for i = 4, #ARGV do
  local was_done, was_wanted = remove_done(ARGV[i]), remove_wanted(ARGV[i])
  if was_done or was_wanted then removed = removed + 1 end
end
return removed
