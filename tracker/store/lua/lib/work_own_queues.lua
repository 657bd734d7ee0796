-- work_own_queues.lua: checks the own queues that items are in. After work_queues.lua.
local function check_own_queues(...)
  if select('#', ...) == 0 then return end
  for _, asked in ipairs(call('HMGET', W .. ':asked', ...)) do
    if asked then check_queues(asked) end
  end
end
