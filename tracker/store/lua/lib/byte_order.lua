-- byte_order.lua: whether a text comes before another in the order of bytes: < is that of the server's locale.
local function is_before(text, other)
  for i = 1, #other do
    local a, b = string.byte(text, i) or -1, string.byte(other, i)
    if a ~= b then return a < b end
  end
  return false
end
