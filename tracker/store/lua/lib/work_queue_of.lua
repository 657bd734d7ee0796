-- work_queue_of.lua: where an item is. After work_project.lua.

-- The queue of an item that is wanted, its place, and the claimants asked; nil when it is in no queue.
local function queue_of(item)
  local asked = call('HGET', W .. ':asked', item)
  if asked then
    local queue = 'todo:d:' .. string.match(asked, '%S+')
    return queue, call('ZSCORE', W .. ':' .. queue, item) or '0', asked
  end
  for _, queue in ipairs({ 'todo', 'todo:secondary', 'todo:redo' }) do
    local place = call('ZSCORE', W .. ':' .. queue, item)
    if place then return queue, place, nil end
  end
end
