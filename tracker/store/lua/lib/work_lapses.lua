-- work_lapses.lua: ends claims whose lease ended. After work_outage.lua, work_types.lua and work_claim_lapse.lua.

-- Returns how many claims lapsed, of at most `max` that were looked at.
local function lapse_ended(fields, max)
  local names = call('ZRANGEBYSCORE', W .. ':out', '-inf', lease_clock(fields), 'LIMIT', 0, max)
  if #names > 0 then check_types() end
  for _, name in ipairs(names) do read_claim(split_name(name)) end
  for _, name in ipairs(names) do lapse(fields, name) end
  return #names
end
