-- work_dequeue.lua: takes an item out of its queues. After work_queues.lua.
local function dequeue_item(item, queue, asked)
  each_queue(queue, asked, function(name) call('ZREM', W .. ':' .. name, item) end)
  if asked then call('HDEL', W .. ':asked', item) end
  call('HDEL', W .. ':wanted', item)
end
