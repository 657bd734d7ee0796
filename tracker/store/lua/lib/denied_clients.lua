-- denied_clients.lua: compares peer ids with some prefixes.

-- `prefixes`: text with prefixes in hex. Returns a function that tells whether an id in hex begins with one of them;
-- nil when there are none. It costs a look-up for each length that a prefix has.
local function new_client_check(prefixes)
  local by_length = {}
  for prefix in string.gmatch(prefixes, '%x+') do
    by_length[#prefix] = by_length[#prefix] or {}
    by_length[#prefix][prefix] = true
  end
  if not next(by_length) then return end
  return function(idx)
    for length, own in pairs(by_length) do
      if own[string.sub(idx, 1, length)] then return true end
    end
    return false
  end
end
