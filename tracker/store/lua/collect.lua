#!lua flags=allow-oom
-- collect.lua: hands out figures of the outbox to be sent, under a lease, oldest first. It frees nothing by itself, but
-- without it nothing would ever be sent and freed.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] the current minute (epoch s), which is not over   ARGV[3] when the leases end (epoch s)
-- ARGV[4]   most figures
-- Answer    for each minute { minute, token, { statistic, count, ... } }
local P, now, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[4])
local leases, minutes, AHEAD = P .. 'leases:outbox', P .. 'outbox', 3600
--@ include lease.lua

-- HSCAN may say a field twice, and more of them than it was asked for.
local function read(list, room)
  local found, seen, cursor, n = {}, {}, '0', 0
  repeat
    local page = redis.call('HSCAN', list, cursor, 'COUNT', room)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local statistic, count = page[2][i], page[2][i + 1]
      if n < room and not seen[statistic] and string.match(count, '^%d+$') then
        seen[statistic] = true
        found[#found + 1], found[#found + 2] = statistic, count
        n = n + 1
      end
    end
  until n >= room or cursor == '0'
  return found, n
end

for _, minute in ipairs(mistaken(leases, tonumber(ARGV[3]) + AHEAD, 100)) do release(leases, minute) end
local answer = {}
for _, minute in ipairs(redis.call('ZRANGEBYSCORE', minutes, '-inf', '(' .. ARGV[2], 'LIMIT', 0, 1000)) do
  if most == 0 then break end
  if not is_leased(leases, minute, now) then
    local list = P .. 'outbox:' .. minute
    local found, n = {}, 0
    if redis.call('TYPE', list).ok == 'hash' then found, n = read(list, most) end
    if n > 0 then
      answer[#answer + 1] = { minute, lease(leases, minute, ARGV[3]), found }
      most = most - n
    else -- somebody deleted it, or put something else there
      redis.call('ZREM', minutes, minute)
      release(leases, minute)
    end
  end
end
if redis.call('EXISTS', minutes) == 0 then redis.call('DEL', P .. 'outbox:waiting') end
return answer
