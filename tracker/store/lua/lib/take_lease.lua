-- take_lease.lua: a lease under a new token.
--@ include lib/leases.lua

-- Tokens grow, and include the deadline, because a store that lost its last second reissues counters.
local function take_lease(set, id, deadline)
  local token = string.format('%.0f-%s', call('INCR', P .. 'lease'), deadline)
  call('ZADD', set, deadline, id)
  call('HSET', set .. ':tokens', id, token)
  return token
end
