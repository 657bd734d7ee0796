-- work_version.lua: compares versions of claimants' programs.

-- Whether a version is older than `oldest` ('': none is). Versions of digits and dots are compared number by number;
-- others are as good as `oldest` or not.
local function is_outdated(version, oldest)
  if oldest == '' or version == oldest then return false end
  if not (string.match(version, '^%d[%d.]*$') and string.match(oldest, '^%d[%d.]*$')) then return true end
  local next_of_version, next_of_oldest = string.gmatch(version, '%d+'), string.gmatch(oldest, '%d+')
  while true do
    local a, b = next_of_version(), next_of_oldest()
    if not a and not b then return false end
    -- Without leading zeros, a longer number is larger: a double would round long ones.
    a, b = string.gsub(a or '', '^0+', ''), string.gsub(b or '', '^0+', '')
    if #a ~= #b then return #a < #b end
    if a ~= b then return a < b end
  end
end
