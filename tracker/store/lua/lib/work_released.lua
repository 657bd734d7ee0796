-- work_released.lua: claims that their claimants gave back. After work_project.lua; needs `now_ms` (epoch ms).
--
-- They still count in the claimant's budget, and one of them stops to count each minute. Otherwise who claims and
-- releases in a loop would use up the rate of the project for all claimants. `released` holds until when they count.
local RELEASED_MS, MAX_RELEASED = 60000, 60

-- For how long (ms) claims that were given back count. A time that is too late was written by a wrong clock.
local function released_ms(who)
  local left = (tonumber(call('ZSCORE', W .. ':released', who) or '') or 0) - now_ms
  return left <= (MAX_RELEASED + 1) * RELEASED_MS and math.max(0, left) or 0
end
