#!lua flags=allow-oom
-- sent.lua: takes out of the outbox what was sent, no more: what was counted meanwhile stays. Ends the leases. Called
-- again with the same tokens it does nothing.
-- KEYS[1]   the prefix
-- ARGV[1]   1: nobody will ever take these figures, they count as dropped
-- ARGV[2..] for each minute: minute, token, how many figures, then pairs of statistic and count. Without figures only
--           its lease ends
-- Answer    { figures taken out, minutes whose lease was lost }
local P = KEYS[1]
local leases, minutes, waiting = P .. 'leases:outbox', P .. 'outbox', P .. 'outbox:waiting'
--@ include lease.lua

local function is(key, kind)
  local found = redis.call('TYPE', key).ok
  return found == kind or found == 'none'
end

local function parcels(each)
  local i = 2
  while i <= #ARGV do
    local n = tonumber(ARGV[i + 2])
    each(ARGV[i], ARGV[i + 1], i + 3, i + 2 + 2 * n)
    i = i + 3 + 2 * n
  end
end

local sound = is(minutes, 'zset') and is(waiting, 'string') and is(P .. 'stats:outbox_dropped', 'string')
parcels(function(minute) sound = sound and is(P .. 'outbox:' .. minute, 'hash') end)
if not sound then return redis.error_reply('WRONGTYPE in the outbox is a key of another kind') end

local taken, lost, dropped = 0, 0, 0
parcels(function(minute, token, first, last)
  if not holds(leases, minute, token) then
    lost = lost + 1
    return
  end
  local list = P .. 'outbox:' .. minute
  for i = first, last, 2 do
    if redis.call('HEXISTS', list, ARGV[i]) == 1 then
      if redis.call('HINCRBY', list, ARGV[i], '-' .. ARGV[i + 1]) <= 0 then
        redis.call('HDEL', list, ARGV[i])
        taken = taken + 1
      end
      dropped = dropped + tonumber(ARGV[i + 1])
    end
  end
  if redis.call('EXISTS', list) == 0 then redis.call('ZREM', minutes, minute) end
  release(leases, minute)
end)
if redis.call('EXISTS', minutes) == 0 then
  redis.call('DEL', waiting)
elseif taken > 0 then
  local left = (tonumber(redis.call('GET', waiting) or '') or 0) - taken
  redis.call('SET', waiting, string.format('%.0f', math.max(0, left)))
end
if ARGV[1] == '1' and dropped > 0 then redis.call('INCRBY', P .. 'stats:outbox_dropped', string.format('%.0f', dropped)) end
return { taken, lost }
