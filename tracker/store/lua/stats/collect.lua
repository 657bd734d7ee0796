#!lua flags=allow-oom
-- collect.lua: returns statistics of the outbox to be sent, under a lease, oldest first. It also runs in a full store,
-- as only sending frees the outbox.
-- ARGV[1]   now (epoch s)   ARGV[2] the current minute (epoch s), which is not over   ARGV[3] when the leases end
--   (epoch s)
-- ARGV[4]   max statistics
-- Answer    for each minute { minute, token, { statistic, count, ... } }
local P, call, now, room = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[4])
local leases, minutes = P .. 'leases:outbox', P .. 'outbox'
local MAX_CLOCK_SKEW = 3600 -- seconds that clocks of trackers may differ
--@ include lib/leases.lua

local function is_leased(minute)
  local deadline = call('ZSCORE', leases, minute)
  return deadline and tonumber(deadline) > now
end

-- HSCAN may return a field twice, and more fields than asked for.
local function read_statistics(list, max_read)
  local found, seen, cursor, n = {}, {}, '0', 0
  repeat
    local page = call('HSCAN', list, cursor, 'COUNT', max_read)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local statistic, count = page[2][i], page[2][i + 1]
      if n < max_read and not seen[statistic] and string.match(count, '^%d+$') then
        seen[statistic] = true
        found[#found + 1], found[#found + 2] = statistic, count
        n = n + 1
      end
    end
  until n >= max_read or cursor == '0'
  return found, n
end

for _, minute in ipairs(leases_beyond(leases, tonumber(ARGV[3]) + MAX_CLOCK_SKEW, 100)) do
  release_lease(leases, minute)
end
local answer = {}
for _, minute in ipairs(call('ZRANGEBYSCORE', minutes, '-inf', '(' .. ARGV[2], 'LIMIT', 0, 1000)) do
  if room == 0 then break end
  if not is_leased(minute) then
    local list = P .. 'outbox:' .. minute
    local found, n = {}, 0
    if call('TYPE', list).ok == 'hash' then found, n = read_statistics(list, room) end
    if n > 0 then
      answer[#answer + 1] = { minute, take_lease(leases, minute, ARGV[3]), found }
      room = room - n
    else -- another program deleted or replaced it
      call('ZREM', minutes, minute)
      release_lease(leases, minute)
    end
  end
end
if call('EXISTS', minutes) == 0 then call('DEL', P .. 'outbox:waiting') end
return answer
