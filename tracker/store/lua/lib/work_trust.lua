-- work_trust.lua: how many claims at once a claimant may have. After work_project.lua.
local function budget_of(fields, claimant)
  local budget = tonumber(call('HGET', W .. ':trust', claimant) or fields.start_budget) or 1
  return math.max(1, math.min(budget, tonumber(fields.budget) or 1))
end
