-- work_lapses.lua: ends claims whose lease ended. After work_types.lua and work_claim_lapse.lua.
local function lapse_claims(fields, names)
  check_types()
  for _, name in ipairs(names) do read_claim(name) end
  for _, name in ipairs(names) do lapse(fields, name) end
end
