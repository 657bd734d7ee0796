-- outbox.lua: statistics for StatHat or StatsD, by the minute in which they were counted. They wait in the store, so a
-- sender may die, and several trackers send each statistic once. `max_waiting` is how many statistics may wait (0: no
-- receiver). Statistics beyond that are dropped and counted.

local function export(minute, statistic, by)
  if max_waiting == 0 then return end
  local list = P .. 'outbox:' .. minute
  if call('HEXISTS', list, statistic) == 0 then
    local waiting = tonumber(call('GET', P .. 'outbox:waiting') or '') or 0
    if waiting >= max_waiting then
      call('INCRBY', P .. 'stats:outbox_dropped', by)
      return
    end
    call('INCR', P .. 'outbox:waiting')
    call('ZADD', P .. 'outbox', minute, minute)
  end
  call('HINCRBY', list, statistic, by)
end
