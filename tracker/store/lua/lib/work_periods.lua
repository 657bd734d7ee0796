-- work_periods.lua: the month and the week of a time, as store/work/periods.py names them.
local MONTHS = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }

-- Days are counted from 1970-01-01, which was a Thursday.
local function first_day(year)
  return 365 * (year - 1970) + math.floor((year - 1969) / 4) - math.floor((year - 1901) / 100)
    + math.floor((year - 1601) / 400)
end

local function year_of(day)
  local year = 1970 + math.floor(day / 365.2425)
  if first_day(year) > day then return year - 1 end
  return first_day(year + 1) <= day and year + 1 or year
end

-- The UTC month and the ISO week of a day, separated by a space: YYYY-MM YYYY-Www.
local function periods_of(day)
  local year, month = year_of(day), 1
  local left = day - first_day(year)
  local leap_day = first_day(year + 1) - first_day(year) - 365
  while left >= MONTHS[month] + (month == 2 and leap_day or 0) do
    left, month = left - MONTHS[month] - (month == 2 and leap_day or 0), month + 1
  end
  local thursday = day - (day + 3) % 7 + 3 -- an ISO week belongs to the year of its Thursday
  local week_year = year_of(thursday)
  local week = math.floor((thursday - first_day(week_year)) / 7) + 1
  return string.format('%04d-%02d %04d-W%02d', year, month, week_year, week)
end
