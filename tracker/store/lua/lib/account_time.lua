-- account_time.lua: the time that a user has spent on a torrent. After accounts.lua and outage.lua.

-- The seconds of [from, till) that the account has not counted yet. Peers of one user overlap; the account remembers
-- the interval that it counted last, and only what lies outside that interval is new. One that ends later than now was
-- counted before the clock was set back.
local function cover(a, from, till)
  local new
  if not a.till or from >= a.till or a.till > till + CLOCK_SLACK then
    new = till - from
    if from ~= a.till then a.from = from end
    a.till = till
  else
    new = math.max(0, till - a.till) + math.max(0, a.from - from)
    a.from, a.till = math.min(a.from, from), math.max(a.till, till)
  end
  return math.max(0, new)
end

local function add_time(a, from, till, seeding)
  local new = cover(a, from, till)
  a.total_time = a.total_time + new
  if seeding then a.seed_time = a.seed_time + new end
end
