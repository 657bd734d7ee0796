#!lua flags=allow-oom
-- acknowledge.lua: removes sent statistics of a minute from the outbox, and ends the lease, unless it was lost. Counts
-- added meanwhile stay. A second call with the same token changes nothing.
-- ARGV[1]   1: no receiver will take these statistics, they count as dropped
-- ARGV[2]   minute   ARGV[3] token   ARGV[4..] pairs of statistic and count. Without statistics only the lease ends
-- Answer    nothing
local P, call, minute = KEYS[1], redis.call, ARGV[2]
local leases, minutes, list = P .. 'leases:outbox', P .. 'outbox', P .. 'outbox:' .. minute
local waiting = P .. 'outbox:waiting'
--@ include lib/numbers.lua
--@ include lib/leases.lua

if not has_lease(leases, minute, ARGV[3]) then return end
-- A key of a wrong type fails here, before the first write.
call('ZCARD', minutes)
call('HLEN', list)
for _, key in ipairs({ waiting, P .. 'stats:outbox_dropped' }) do call('STRLEN', key) end

local removed, dropped = 0, 0
for i = 4, #ARGV, 2 do
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
if call('EXISTS', minutes) == 0 then
  call('DEL', waiting)
elseif removed > 0 then
  local left = (tonumber(call('GET', waiting) or '') or 0) - removed
  call('SET', waiting, decimal(math.max(0, left)))
end
if ARGV[1] == '1' and dropped > 0 then add_bounded(P .. 'stats:outbox_dropped', nil, decimal(dropped)) end
