-- rules.lua: the rules of a multiplier, such as `2 1790000000 donor, 1.5 group`: value, end (epoch s) and name of each.
local MAX_RULES, MAX_RULES_BYTES = 8, 255

-- Value, end (nil: never) and name of a rule; nil for text of another form, which a site may have written.
local function parse_rule(text)
  local value, ends, name = string.match(text, '^ *([%d.]+)%f[%z ] ?(%d*)%f[%z ] ?([%w_-]*) *$')
  local number = value and tonumber(value)
  if not number or number > 1000 or #ends > 12 then return end
  -- Lua reads inf and nan as numbers: they are meant as an end.
  if name ~= '' and (tonumber(name) or not string.find(name, '^%a')) then return end
  return number, tonumber(ends), name
end
