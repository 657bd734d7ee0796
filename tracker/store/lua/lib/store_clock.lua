-- store_clock.lua: the last outage, with jumps of the store's clock counted as one. After outage.lua, `P` and `call`.
--
-- Timeouts run on the store's clock. When it jumps ahead, timeouts of peers end that are still there, so the jump
-- counts as an outage that ends now.

-- `expected` is what the store's clock should show (epoch s; '' unknown). Returns start and end of the outage as
-- last_outage() does, then the values of `gap` and `heartbeat`.
local function current_outage(expected)
  local stored = call('MGET', P .. 'gap', P .. 'heartbeat')
  local clock = tonumber(expected)
  if clock and tonumber(call('TIME')[1]) - clock > OUTAGE then return now, now, stored[1], stored[2] end
  local from, till = last_outage(stored[1], stored[2])
  return from, till, stored[1], stored[2]
end
