-- slices.lua: adds to the slices of a counter.
--@ include lib/numbers.lua

-- The lengths (s) of the slices that each counter has. store/stats/slices.py has them as well.
local PRECISIONS = { 1, 5, 60, 300, 900, 3600, 7200, 18000, 28800, 86400 }

-- The start of the slice that holds `second`, in each precision, as text; cached for all counters.
local starts = {}

local function starts_of(second)
  local found = starts[second]
  if not found then
    found = {}
    for i, precision in ipairs(PRECISIONS) do found[i] = string.format('%.0f', second - second % precision) end
    starts[second] = found
  end
  return found
end

-- Adds `n` (decimal digits). A slice that holds no more than was added is new, and may be the counter's first slice.
-- Returns how many keys were of another type, which stay as they are.
local function add_to_slices(name, second, n)
  local slices, added, wrong_keys = starts_of(second), tonumber(n), 0
  for i, precision in ipairs(PRECISIONS) do
    local entry = precision .. ':' .. name
    local total = add_bounded(P .. 'count:' .. entry, slices[i], n)
    if not total then
      wrong_keys = wrong_keys + 1
    elseif total == added and type(redis.pcall('ZADD', P .. 'known:', '0', entry)) == 'table' then
      wrong_keys = wrong_keys + 1
    end
  end
  return wrong_keys
end
