-- hex.lua: peer ids (20 bytes) to and from hex.

-- One format() for all bytes takes half as long again.
local to_hex
do
local hex_of = setmetatable({}, { __index = function(known, number)
  known[number] = string.format('%02x', number)
  return known[number]
end })
function to_hex(id)
  local hex, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t = hex_of, string.byte(id, 1, 20)
  return hex[a] .. hex[b] .. hex[c] .. hex[d] .. hex[e] .. hex[f] .. hex[g] .. hex[h] .. hex[i] .. hex[j] .. hex[k]
    .. hex[l] .. hex[m] .. hex[n] .. hex[o] .. hex[p] .. hex[q] .. hex[r] .. hex[s] .. hex[t]
end
end

local function to_raw(idx)
  if #idx == 40 then
    return struct.pack('>I4I4I4I4I4', tonumber(string.sub(idx, 1, 8), 16), tonumber(string.sub(idx, 9, 16), 16),
      tonumber(string.sub(idx, 17, 24), 16), tonumber(string.sub(idx, 25, 32), 16),
      tonumber(string.sub(idx, 33, 40), 16))
  end
  return (string.gsub(idx, '..', function(digits) return string.char(tonumber(digits, 16)) end))
end
