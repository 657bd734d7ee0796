#!lua flags=allow-oom
-- work_rank.lua: adds finished items to the leaderboards, charts and sums of a project, from the entries of its log.
-- The project's field `ranked` names the last entry that was added, so each is added once. In a full store nothing new
-- is finished, and what was is still added.
-- ARGV[1]   project   ARGV[2] max entries
-- Answer    the number of entries added; nil when there is no such project
local P, call = KEYS[1], redis.call
--@ include lib/calendar.lua
--@ include lib/work_queues.lua

-- The UTC month and the ISO week of a day as store/work/periods.py names them, separated by a space.
local function periods_of(day)
  local year, month = month_of(day)
  local thursday = day - (day + 3) % 7 + 3 -- an ISO week belongs to the year of its Thursday
  local week_year = month_of(thursday)
  local week = math.floor((thursday - first_day(week_year)) / 7) + 1
  return string.format('%04d-%02d %04d-W%02d', year, month, week_year, week)
end

-- The leaderboards of a project, of all time, by month and by week. One of a wrong type is not kept.
local RANKINGS = { ':downloader_count', ':downloader_bytes', ':downloader_seconds' }

-- `periods` are separated by spaces; `sums` are finished items, bytes and seconds. Returns the claimant's sums of all
-- time as text, in the same order.
local function add_to_rankings(periods, claimant, sums)
  local totals = {}
  for i, sum in ipairs(sums) do
    local total
    if i < 3 or sum > 0 then
      for period in string.gmatch(periods, '%S+') do
        redis.pcall('ZINCRBY', W .. RANKINGS[i] .. ':' .. period, decimal(sum), claimant)
      end
      total = redis.pcall('ZINCRBY', W .. RANKINGS[i], decimal(sum), claimant)
    else
      total = redis.pcall('ZSCORE', W .. RANKINGS[i], claimant)
    end
    totals[i] = decimal(type(total) == 'string' and tonumber(total) or 0)
  end
  return unpack(totals)
end

-- Bounds (s) of the histogram of times from claim to done; store/work/statistics.py has the same list.
local CLAIM_SECONDS = { 60, 600, 3600, 21600, 86400, 172800, 345600, 604800, 1209600 }
local CHART_SECONDS, CHART_POINTS = 600, 1000
local CHART_KEPT = 400 * 86400 -- seconds after the last point
local MAX_DOMAINS = 100
local MAX_AT, MAX_BYTES = 253402300799999, 2 ^ 53 -- of an entry that something else wrote: the year 9999 (epoch ms)

local after = project.ranked ~= '' and '(' .. project.ranked or '-'
local entries = call('XRANGE', W .. ':log', after, '+', 'COUNT', ARGV[2])
if #entries == 0 then return 0 end

local totals, domains, versions = {}, {}, {}
local groups, order = {}, {} -- what a claimant finished within one point of its chart

local function add_to(sums, name, number)
  sums[name] = (sums[name] or 0) + number
end

local function amount(text, most)
  return math.max(0, math.min(most, whole(text)))
end

local function add_entry(flat)
  local row = {}
  for i = 1, #flat, 2 do row[flat[i]] = flat[i + 1] end
  if not row.by or row.by == '' then return end
  local at_ms = amount(row.at, MAX_AT)
  local bytes, seconds = amount(row.total, MAX_BYTES), amount(row.seconds, MAX_BYTES)
  local at = math.floor(at_ms / 1000)
  local slot = at - at % CHART_SECONDS
  local key = decimal(slot) .. ' ' .. row.by
  if not groups[key] then
    groups[key] = { claimant = row.by, slot = slot, sums = { 0, 0, 0 } }
    order[#order + 1] = groups[key]
  end
  local sums = groups[key].sums
  sums[1], sums[2], sums[3] = sums[1] + 1, sums[2] + bytes, sums[3] + seconds
  local readable, by_domain = pcall(cjson.decode, row.bytes or '')
  for domain, moved in pairs(readable and type(by_domain) == 'table' and by_domain or {}) do
    if type(domain) == 'string' and type(moved) == 'number' then add_to(domains, domain, amount(moved, MAX_BYTES)) end
  end
  if row.version and row.version ~= '' then versions[row.by] = row.version end
  local took, bucket = 0, 'more'
  if row.claimed and row.claimed ~= '' then took = math.floor((at_ms - amount(row.claimed, at_ms)) / 1000) end
  for i = #CLAIM_SECONDS, 1, -1 do
    if took <= CLAIM_SECONDS[i] then bucket = CLAIM_SECONDS[i] end
  end
  add_to(totals, 'bytes', bytes)
  add_to(totals, 'took', took)
  add_to(totals, 'took_' .. bucket, 1)
  add_to(totals, seconds > 0 and 'seconds' or 'unverified', math.max(1, seconds))
end

-- Where the project has no list of domains, claimants choose the names: then only the first MAX_DOMAINS are kept.
local function add_to_domain(domain, bytes)
  local key = W .. ':domain_bytes'
  if project.domains == '' and redis.pcall('HEXISTS', key, domain) ~= 1 then
    local count = redis.pcall('HLEN', key)
    if type(count) ~= 'number' or count >= MAX_DOMAINS then return end
  end
  add_bounded(key, domain, decimal(bytes))
end

-- One point for each ten minutes: the sums at its end.
local function add_to_chart(chart, slot, items, bytes, seconds)
  local time = decimal(slot)
  local point = table.concat({ time, items, bytes, seconds }, ' ')
  local last_point = redis.pcall('LINDEX', chart, -1)
  if type(last_point) == 'string' and string.match(last_point, '^%d+') == time then
    call('LSET', chart, -1, point)
  elseif type(last_point) ~= 'table' then
    if call('RPUSH', chart, point) > CHART_POINTS then call('LTRIM', chart, -CHART_POINTS, -1) end
    call('EXPIRE', chart, CHART_KEPT)
  end
end

-- The same of all claimants together.
local function add_to_total_chart(slot, sums)
  local chart, point = W .. ':chart', {}
  local last = redis.pcall('LINDEX', chart, -1)
  for number in string.gmatch(type(last) == 'string' and last or '', '%d+') do point[#point + 1] = whole(number) end
  for i, sum in ipairs(sums) do point[i] = decimal(math.min(MAX_BYTES, (point[i + 1] or 0) + sum)) end
  add_to_chart(chart, slot, point[1], point[2], point[3])
end

for _, entry in ipairs(entries) do add_entry(entry[2]) end
for _, group in ipairs(order) do
  local periods = periods_of(math.floor(group.slot / 86400))
  add_to_chart(W .. ':chart:' .. group.claimant, group.slot, add_to_rankings(periods, group.claimant, group.sums))
  add_to_total_chart(group.slot, group.sums)
end
for claimant, version in pairs(versions) do redis.pcall('HSET', W .. ':downloader_version', claimant, version) end
for domain, bytes in pairs(domains) do add_to_domain(domain, bytes) end
for name, number in pairs(totals) do
  if number > 0 then count_work(name, decimal(number)) end
end
call('HSET', W, 'ranked', entries[#entries][1])
return #entries
