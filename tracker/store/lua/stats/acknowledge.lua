#!lua flags=allow-oom
-- acknowledge.lua: removes sent statistics from the outbox, and ends the leases. Counts added meanwhile stay. A second
-- call with the same tokens changes nothing.
-- ARGV[1]   1: no receiver will take these statistics, they count as dropped
-- ARGV[2..] for each minute: minute, token, how many statistics, then pairs of statistic and count. Without statistics
--           only its lease ends
-- Answer    { statistics removed, minutes whose lease was lost }
local P, call = KEYS[1], redis.call
local leases, minutes, waiting = P .. 'leases:outbox', P .. 'outbox', P .. 'outbox:waiting'
--@ include lib/numbers.lua
--@ include lib/leases.lua

-- Calls `each` with minute, token, and the range of ARGV with its statistics.
local function for_each_minute(each)
  local i = 2
  while i <= #ARGV do
    local n = tonumber(ARGV[i + 2])
    each(ARGV[i], ARGV[i + 1], i + 3, i + 2 + 2 * n)
    i = i + 3 + 2 * n
  end
end

-- A key of a wrong type fails here, before the first write.
call('ZCARD', minutes)
for _, key in ipairs({ waiting, P .. 'stats:outbox_dropped' }) do call('STRLEN', key) end
for_each_minute(function(minute) call('HLEN', P .. 'outbox:' .. minute) end)

local removed, lost, dropped = 0, 0, 0
for_each_minute(function(minute, token, first, last)
  if not has_lease(leases, minute, token) then
    lost = lost + 1
    return
  end
  local list = P .. 'outbox:' .. minute
  for i = first, last, 2 do
    if call('HEXISTS', list, ARGV[i]) == 1 then
      if call('HINCRBY', list, ARGV[i], '-' .. ARGV[i + 1]) <= 0 then
        call('HDEL', list, ARGV[i])
        removed = removed + 1
      end
      dropped = dropped + tonumber(ARGV[i + 1])
    end
  end
  if call('EXISTS', list) == 0 then call('ZREM', minutes, minute) end
  release_lease(leases, minute)
end)
if call('EXISTS', minutes) == 0 then
  call('DEL', waiting)
elseif removed > 0 then
  local left = (tonumber(call('GET', waiting) or '') or 0) - removed
  call('SET', waiting, decimal(math.max(0, left)))
end
if ARGV[1] == '1' and dropped > 0 then add_bounded(P .. 'stats:outbox_dropped', nil, decimal(dropped)) end
return { removed, lost }
