-- work_blocked.lua: who gets nothing. After work_project.lua.

-- Whether the claimant, the address or its network is blocked, in this project or in all.
local function is_blocked(claimant, address, network)
  if call('EXISTS', W .. ':blocked', P .. 'w:blocked') == 0 then return false end
  for _, set in ipairs({ W .. ':blocked', P .. 'w:blocked' }) do
    local found = call('SMISMEMBER', set, claimant, address, network)
    if found[1] + found[2] + found[3] > 0 then return true end
  end
  return false
end
