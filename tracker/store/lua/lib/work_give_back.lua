-- work_give_back.lua: the item of a claim that ended is wanted again. After numbers.lua and work_enqueue.lua.

-- It goes to the queue and place that it came from, or to `queue`. An item that is wanted meanwhile stays where it is.
local function give_back(item, claim, queue)
  if claim.shared and add_bounded(W .. ':wanted', item, '1') > 1 then return end
  enqueue_item(item, queue or claim.queue, tonumber(claim.place), not queue and claim.asked or nil)
end
