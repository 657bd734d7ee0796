-- calendar.lua: years and months of days (UTC). Days are counted from 1970-01-01, which was a Thursday.

local function first_day(year)
  return 365 * (year - 1970) + math.floor((year - 1969) / 4) - math.floor((year - 1901) / 100)
    + math.floor((year - 1601) / 400)
end

-- The year and the month of a day.
local function month_of(day)
  local year, month = 1970 + math.floor(day / 365.2425), 1
  if first_day(year) > day then year = year - 1 elseif first_day(year + 1) <= day then year = year + 1 end
  local left, february = day - first_day(year), first_day(year + 1) - first_day(year) - 337
  for _, length in ipairs({ 31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30 }) do
    if left < length then break end
    left, month = left - length, month + 1
  end
  return year, month
end
