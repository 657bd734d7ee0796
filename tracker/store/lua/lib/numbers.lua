-- numbers.lua: numbers from text and to text.

--@ include lib/whole.lua

local function decimal(number)
  return string.format('%.0f', number)
end
