#!lua
-- work_add.lua: adds items to a project. An item that is wanted, out or done is skipped.
-- ARGV[1]   project   ARGV[2] '1': also add what is done, again
-- ARGV[3..] five each: item, queue ('todo', 'todo:secondary' or 'todo:redo'), claimants asked ('': all), copies, place
-- Answer    the number of items added; nil when there is no such project
local P, call = KEYS[1], redis.call
--@ include lib/work_queues.lua

check_types()
local names = {}
for i = 3, #ARGV, 5 do
  names[#names + 1] = ARGV[i]
  if ARGV[i + 2] ~= '' then check_queues(ARGV[i + 2]) end
end
check_own_queues(unpack(names))

local function is_known(item)
  if queue_of(item) or call('HEXISTS', W .. ':holders', item) == 1 then return true end
  if not call('ZSCORE', W .. ':done', item) then return false end
  if ARGV[2] ~= '1' then return true end
  call('ZREM', W .. ':done', item)
  return false
end

local added, copies_added = 0, 0
for i = 3, #ARGV, 5 do
  local item, copies, asked = ARGV[i], tonumber(ARGV[i + 3]), ARGV[i + 2] ~= '' and ARGV[i + 2] or nil
  if not is_known(item) then
    enqueue_item(item, ARGV[i + 1], ARGV[i + 4], asked)
    if project.kind == 'seeding' or copies > 1 then call('HSET', W .. ':wanted', item, copies) end
    added, copies_added = added + 1, copies_added + copies
  end
end
if added > 0 then count_work('added', string.format('%.0f', copies_added)) end
return added
