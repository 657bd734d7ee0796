-- work_blocked.lua: who gets nothing.
--@ include lib/work_project.lua

-- Whether the claimant, the address or its network is blocked, in this project or in all; then whether one of the
-- further keys may exist: the same command finds that out.
local function is_blocked(claimant, address, network, ...)
  local sets = { W .. ':blocked', P .. 'w:blocked', ... }
  if call('EXISTS', unpack(sets)) == 0 then return false, false end
  for i = 1, 2 do
    local found = call('SMISMEMBER', sets[i], claimant, address, network)
    if found[1] + found[2] + found[3] > 0 then return true, true end
  end
  return false, true
end
