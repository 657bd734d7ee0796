-- store_clock.lua: the last interruption, with jumps of the store's clock counted as one.
--
-- Timeouts run on the store's clock. When it jumps ahead, timeouts of peers end that are still there, also if it is set
-- right at once. So the script that notices a jump records it.
--@ include lib/outage.lua
local SAME_JUMP = 30 -- seconds: processes notice the same interruption one after the other

local function save_gap(gap, from, till, shift, set_back)
  local ahead, back = string.match(gap or '', '^%d+ %d+ (%-?%d+) (%d+)$')
  call('SET', P .. 'gap', string.format('%.0f %.0f %.0f %.0f', from, till, (tonumber(ahead) or 0) + shift,
    (tonumber(back) or 0) + set_back))
end

-- Start and end of the last interruption, and what the steady clock shows, as last_outage() returns them. `expected` is
-- what the store's clock should show (epoch s; '' unknown).
local function current_outage(expected)
  local stored = call('MGET', P .. 'gap', P .. 'heartbeat')
  local from, till, steady = last_outage(stored[1], stored[2])
  local clock = tonumber(expected)
  if not clock or tonumber(call('TIME')[1]) - clock <= OUTAGE then return from, till, steady end
  local beat = tonumber(stored[2] or '')
  local at = beat and till == now and beat or now -- on a clock that has stepped too, `now` would be of no use later
  if till == now or now - till > SAME_JUMP then save_gap(stored[1], at, at, 0, 0) end
  return now, now, steady
end
