#!lua flags=allow-oom
-- collect.lua: returns statistics of the outbox to be sent, under a lease, oldest first. It also runs in a full store,
-- as only sending frees the outbox.
-- ARGV[1]   now (epoch s)   ARGV[2] the current minute (epoch s), which is not over
-- ARGV[3]   when the leases end (epoch s)   ARGV[4] max statistics
-- Answer    for each minute { minute, token, { statistic, count, ... } }
local P, call, now, room = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[4])
local leases, minutes = P .. 'leases:outbox', P .. 'outbox'
local MAX_CLOCK_SKEW = 3600 -- seconds that clocks of trackers may differ
--@ include lib/leases.lua

for _, minute in ipairs(leases_beyond(leases, tonumber(ARGV[3]) + MAX_CLOCK_SKEW, 100)) do
  release_lease(leases, minute)
end
local answer = {}
for _, minute in ipairs(call('ZRANGEBYSCORE', minutes, '-inf', '(' .. ARGV[2], 'LIMIT', 0, 1000)) do
  if room == 0 then break end
  if tonumber(call('ZSCORE', leases, minute) or 0) <= now then -- not leased
    local list = P .. 'outbox:' .. minute
    local found, read = {}
    repeat
      read = redis.pcall('HRANDFIELD', list, room, 'WITHVALUES')
      for i = 1, #read, 2 do
        if string.match(read[i + 1], '^%d+$') then
          found[#found + 1], found[#found + 2] = read[i], read[i + 1]
        else -- another program wrote it: it must not take the place of others
          call('HDEL', list, read[i])
        end
      end
    until #found > 0 or #read == 0
    if #found > 0 then
      answer[#answer + 1] = { minute, take_lease(leases, minute, ARGV[3]), found }
      room = room - #found / 2
    else -- another program deleted or replaced it
      call('ZREM', minutes, minute)
      release_lease(leases, minute)
    end
  end
end
if call('EXISTS', minutes) == 0 then call('DEL', P .. 'outbox:waiting') end
return answer
