-- ids.lua: peer ids (20 bytes) to and from hex.

local function to_hex(id)
  return string.format('%08x%08x%08x%08x%08x', struct.unpack('>I4I4I4I4I4', id))
end

local function to_raw(idx)
  if #idx == 40 then
    return struct.pack('>I4I4I4I4I4', tonumber(string.sub(idx, 1, 8), 16), tonumber(string.sub(idx, 9, 16), 16),
      tonumber(string.sub(idx, 17, 24), 16), tonumber(string.sub(idx, 25, 32), 16),
      tonumber(string.sub(idx, 33, 40), 16))
  end
  return (string.gsub(idx, '..', function(digits) return string.char(tonumber(digits, 16)) end))
end
