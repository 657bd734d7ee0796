-- work_queues.lua: the queues that an item is in. After work_project.lua.
--
-- An item that is wanted is in one shared queue, or in the own queues of those whom `asked` lists. `wanted` holds how
-- many copies are to be given out; an item that never had more than one has no field there.

-- Calls `on(queue)` for the shared queue, or for those of the claimants `asked`.
local function each_queue(queue, asked, on)
  if not asked then return on(queue) end
  for claimant in string.gmatch(asked, '%S+') do on('todo:d:' .. claimant) end
end
