-- work_budget.lua: how many claims at once a claimant may have. Needs `now_ms` (epoch ms).
--@ include lib/numbers.lua
--@ include lib/work_project.lua

-- The claims at once; then what is stored, if anything.
local function budget_of(claimant)
  local stored = call('HGET', W .. ':trust', claimant)
  local budget = tonumber(stored or project.start_budget) or 1
  return math.max(1, math.min(budget, tonumber(project.budget) or 1)), stored
end

-- Claims that their claimants gave back. They still count in the claimant's budget, and one of them stops to count each
-- minute. Otherwise who claims and releases in a loop would use up the rate of the project for all claimants.
-- `released` holds until when they count.
local RELEASED_MS, MAX_RELEASED = 60000, 60

-- For how long (ms) claims that were given back count. A time that is too late was written by a wrong clock.
local function released_ms(who)
  local left = (tonumber(call('ZSCORE', W .. ':released', who) or '') or 0) - now_ms
  return left <= (MAX_RELEASED + 1) * RELEASED_MS and math.max(0, left) or 0
end

local function note_released(who)
  local counts = math.min(released_ms(who), (MAX_RELEASED - 1) * RELEASED_MS) + RELEASED_MS
  call('ZADD', W .. ':released', decimal(now_ms + counts), who)
end
