-- work_queues.lua: the queues that an item is in. After work_project.lua.
--
-- An item that is wanted is in one shared queue, or in the own queues of the claimants in `asked`. `wanted` holds how
-- many copies are to be given out; an item that never had more than one has no field there.

-- Calls `on(queue)` for the shared queue, or for those of the claimants `asked`.
local function each_queue(queue, asked, on)
  if not asked then return on(queue) end
  for claimant in string.gmatch(asked, '%S+') do on('todo:d:' .. claimant) end
end

-- A failed command does not undo those before it, so an own queue of a wrong type fails here, before the first write.
local function check_queues(asked)
  each_queue(nil, asked, function(name) call('ZCARD', W .. ':' .. name) end)
end
