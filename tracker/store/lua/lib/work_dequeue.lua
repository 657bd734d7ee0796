-- work_dequeue.lua: takes an item out of its queues. After work_queues.lua.

-- `shared` unless the item has no field in `wanted`.
local function dequeue_item(item, queue, asked, shared)
  each_queue(queue, asked, function(name) call('ZREM', W .. ':' .. name, item) end)
  if asked then call('HDEL', W .. ':asked', item) end
  if shared then call('HDEL', W .. ':wanted', item) end
end
