-- work_enqueue.lua: puts an item into its queues. After work_queues.lua.
local function enqueue_item(item, queue, place, asked)
  each_queue(queue, asked, function(name) call('ZADD', W .. ':' .. name, place, item) end)
  if asked then call('HSET', W .. ':asked', item, asked) end
end
