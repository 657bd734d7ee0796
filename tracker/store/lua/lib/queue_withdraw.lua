-- queue_withdraw.lua: a job waits no longer. After queue.lua.

-- Also removes ids of deleted jobs.
local function withdraw(Q, id)
  for _, set in ipairs({ 'pending', 'retry', 'ready', 'delayed', 'deadlines' }) do call('ZREM', Q[set], id) end
end
