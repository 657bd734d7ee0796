-- lease.lua: gives out the right to work on something for a limited time. After `P` and `call`.
--
-- A worker that does not finish in time loses the lease to the next one. The token tells a late worker from the current
-- one (a fencing token). Tokens grow, and include the deadline, because a store that lost its last second reissues
-- counters. `set` is a ZSET of ids by the end of their lease, in the unit of the script's `now`.

local function take_lease(set, id, deadline)
  local token = string.format('%.0f-%s', call('INCR', P .. 'lease'), deadline)
  call('ZADD', set, deadline, id)
  call('HSET', set .. ':tokens', id, token)
  return token
end
