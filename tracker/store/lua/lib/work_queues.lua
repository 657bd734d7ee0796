-- work_queues.lua: the queues and totals of a project.
--@ include lib/numbers.lua
--@ include lib/work_project.lua

-- A failed command does not undo those before it, so a key of a wrong type fails here, before the first write.
local function check_types()
  for _, index in ipairs({ ':out', ':todo', ':todo:secondary', ':todo:redo', ':lapsed', ':done', ':checks' }) do
    call('ZCARD', W .. index)
  end
  for _, hash in ipairs({ ':out:tokens', ':claims', ':wanted', ':asked', ':holders', ':trust', ':lapsed:claims' }) do
    call('HLEN', W .. hash)
  end
end

-- The totals of all time of a project. work_lapse.lua moves what was added since its last run to the counters in
-- slices: a claim costs one command here instead of seven, and nothing is lost or counted twice when a tracker dies.
local function count_work(what, n)
  add_bounded(W .. ':totals', what, n)
end

-- The queues that an item is in. An item that is wanted is in one shared queue, or in the own queues of the
-- claimants in `asked`. `wanted` holds how many copies are to be given out, but not for an item of a single copy.
--
-- Calls `on(queue)` for the shared queue, or for those of the claimants `asked`.
local function each_queue(queue, asked, on)
  if not asked then return on(queue) end
  for claimant in string.gmatch(asked, '%S+') do on('todo:d:' .. claimant) end
end

-- A failed command does not undo those before it, so an own queue of a wrong type fails here, before the first write.
local function check_queues(asked)
  each_queue(nil, asked, function(name) call('ZCARD', W .. ':' .. name) end)
end

local function check_own_queues(...)
  if select('#', ...) == 0 then return end
  for _, asked in ipairs(call('HMGET', W .. ':asked', ...)) do
    if asked then check_queues(asked) end
  end
end

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

local function enqueue_item(item, queue, place, asked)
  each_queue(queue, asked, function(name) call('ZADD', W .. ':' .. name, place, item) end)
  if asked then call('HSET', W .. ':asked', item, asked) end
end

-- `shared`: unless the item has no field in `wanted`.
local function dequeue_item(item, queue, asked, shared)
  each_queue(queue, asked, function(name) call('ZREM', W .. ':' .. name, item) end)
  if asked then call('HDEL', W .. ':asked', item) end
  if shared then call('HDEL', W .. ':wanted', item) end
end
