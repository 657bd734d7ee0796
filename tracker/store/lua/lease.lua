-- lease.lua: the right to work on something for a while. Whoever does not come back in time loses it to the next, and
-- the token tells the late one from the one that works on it now (a fencing token: they grow, and as a store that lost its
-- last second counts some again, they also say when they end). A fragment, after `P`. `leases` is a ZSET of what is worked on, by when its lease ends, in whatever unit the including script's `now` is.

local function lease(leases, id, deadline)
  local token = string.format('%.0f-%s', redis.call('INCR', P .. 'lease'), deadline)
  redis.call('ZADD', leases, deadline, id)
  redis.call('HSET', leases .. ':tokens', id, token)
  return token
end

local function is_leased(leases, id, now)
  local deadline = redis.call('ZSCORE', leases, id)
  return deadline and tonumber(deadline) > now
end

local function holds(leases, id, token)
  return redis.call('HGET', leases .. ':tokens', id) == token
end

-- Only who holds it may call this.
local function extend(leases, id, deadline)
  redis.call('ZADD', leases, 'XX', deadline, id)
end

local function release(leases, id)
  redis.call('ZREM', leases, id)
  redis.call('HDEL', leases .. ':tokens', id)
end

-- Those that end later than any lease could: of a worker that died while its clock was ahead. Clocks of trackers that work
-- together may be a little apart, so `latest` is to be far beyond the end of a lease that begins now.
local function mistaken(leases, latest, most)
  return redis.call('ZRANGEBYSCORE', leases, string.format('(%.0f', latest), '+inf', 'LIMIT', 0, most)
end

-- Those whose time is over, longest first.
local function lapsed(leases, now, most)
  return redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, most)
end
