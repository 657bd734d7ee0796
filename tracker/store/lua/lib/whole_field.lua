-- whole_field.lua: a field that another program may have overwritten, as a whole number from 0 to MAX_EXACT. After
-- max_exact.lua and whole.lua.
local function whole_field(text)
  if not text then return 0 end
  local number = tonumber(text)
  if number and number >= 0 and number <= MAX_EXACT and number % 1 == 0 then return number end
  return math.min(MAX_EXACT, math.max(0, whole(text)))
end
