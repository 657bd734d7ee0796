-- outbox.lua: figures on their way to StatHat or StatsD, by the minute they were counted in. They wait in the store, so
-- that whoever sends them may die, and several trackers send each once. A fragment, after `P`; `outbox_most` is how many
-- figures may wait (0: nobody wants them). What would be too many is dropped, and the drop counted.

local function export(minute, statistic, by)
  if outbox_most == 0 then return end
  local list = P .. 'outbox:' .. minute
  if redis.call('HEXISTS', list, statistic) == 0 then
    local waiting = tonumber(redis.call('GET', P .. 'outbox:waiting') or '') or 0
    if waiting >= outbox_most then
      redis.call('INCRBY', P .. 'stats:outbox_dropped', by)
      return
    end
    redis.call('INCR', P .. 'outbox:waiting')
    redis.call('ZADD', P .. 'outbox', minute, minute)
  end
  redis.call('HINCRBY', list, statistic, by)
end
