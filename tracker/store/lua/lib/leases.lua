-- leases.lua: the right to work on something for a limited time.
--
-- `set` is a ZSET of what is worked on, by the end of its lease in the unit of the script's `now`; `set:tokens` has the
-- token of each. A worker that does not finish in time loses the lease to the next one, and the token tells them apart
-- (a fencing token).

local function has_lease(set, id, token)
  return call('HGET', set .. ':tokens', id) == token
end

local function release_lease(set, id)
  call('ZREM', set, id)
  call('HDEL', set .. ':tokens', id)
end

-- Leases that end later than any lease can: of a worker that died while its clock was ahead. Clocks of trackers differ
-- a little, so `latest` has to be well after the end of a lease that begins now.
local function leases_beyond(set, latest, max)
  return call('ZRANGEBYSCORE', set, string.format('(%.0f', latest), '+inf', 'LIMIT', 0, max)
end

-- The latest end of a lease that begins now. Clocks of trackers differ: the one whose clock is ahead keeps a lease.
local function latest_end(at, seconds)
  return at + seconds + 3600
end

-- Takes or extends a lease under the holder's own token, and forgets a few old ones. False: another holder has it.
local function hold_lease(set, id, token, at, seconds)
  local ends = tonumber(call('ZSCORE', set, id) or '0')
  if ends > at and ends <= latest_end(at, seconds) and not has_lease(set, id, token) then return false end
  call('ZADD', set, string.format('%.0f', at + seconds), id)
  call('HSET', set .. ':tokens', id, token)
  for _, old in ipairs(call('ZRANGEBYSCORE', set, '-inf', at - 3600, 'LIMIT', 0, 10)) do release_lease(set, old) end
  return true
end

-- A lease under a new token. A store that lost its last second reissues counters, so tokens include the deadline.
local function take_lease(set, id, deadline)
  local token = string.format('%.0f-%s', call('INCR', P .. 'lease'), deadline)
  call('ZADD', set, deadline, id)
  call('HSET', set .. ':tokens', id, token)
  return token
end
