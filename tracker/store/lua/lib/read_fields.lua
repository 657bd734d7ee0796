-- read_fields.lua: fields of a hash that another program may have overwritten. After `call`.

-- A key of a wrong type counts as missing: it must not keep others from being looked at.
local function read_fields(key, ...)
  local v = redis.pcall('HMGET', key, ...)
  return v.err and {} or v
end
