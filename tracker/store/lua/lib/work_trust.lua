-- work_trust.lua: how many claims at once a claimant may have. After work_project.lua.

-- Also returns what is stored, if anything.
local function budget_of(fields, claimant)
  local stored = call('HGET', W .. ':trust', claimant)
  local budget = tonumber(stored or fields.start_budget) or 1
  return math.max(1, math.min(budget, tonumber(fields.budget) or 1)), stored
end
