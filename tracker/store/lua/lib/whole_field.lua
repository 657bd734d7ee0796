-- whole_field.lua: a field that another program may have overwritten, as a whole number from 0 to MAX_EXACT. After
-- max_exact.lua and whole.lua.
local function whole_field(text)
  return math.min(MAX_EXACT, math.max(0, whole(text)))
end
