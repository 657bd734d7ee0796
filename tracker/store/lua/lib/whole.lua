-- whole.lua: numbers from text.

-- Any text as a whole number; 0 for text that is not a number.
local function whole(text)
  local n = tonumber(text or '')
  if not n or n ~= n then return 0 end
  return n < 0 and math.ceil(n) or math.floor(n)
end
