#!lua flags=allow-oom
-- count.lua: adds what a process counted and measured, once, even if the process sends it repeatedly. It also runs in a
-- full store: it adds little, and operators see in these counters that the store is full.
-- ARGV[1]   name of the process   ARGV[2] number of the batch   ARGV[3] max statistics in the outbox
-- ARGV[4]   how many counters     ARGV[5] how many of them, the first ones, are exported
-- ARGV[6..] pairs: each counter and its 'second count second count …', then each distribution and its
--           'second count mean squares min max second …'
-- Answer    how many keys or values were of another type
local P, call, max_waiting, wrong = KEYS[1], redis.call, tonumber(ARGV[3]), 0
local process = P .. 'counted:' .. ARGV[1]
if call('SET', process, ARGV[2], 'EX', 86400, 'GET') == ARGV[2] then return 0 end
--@ include lib/outbox.lua
--@ include lib/slices.lua

local TOTALS = {
  announces = 'announces', scrapes = 'scrapes', requests = 'requests', reaps = 'reaped', repairs = 'repairs',
  forgotten = 'forgotten', tally_dropped = 'tally_dropped', software_dropped = 'software_dropped',
  unique_skipped = 'unique_skipped',
}

-- A key of a wrong type must not fail the others.
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' then return answer end
  wrong = wrong + 1
end

-- Merges two distributions (Chan, Golub and LeVeque 1979), as Distribution.merge in slices.py does. A stored value that
-- is not a distribution is overwritten.
local function merged(stored, count, mean, squares, low, high)
  local c, m, s, l, h = string.match(stored, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  c, m, s, l, h = tonumber(c or ''), tonumber(m or ''), tonumber(s or ''), tonumber(l or ''), tonumber(h or '')
  if not (c and m and s and l and h) then
    wrong = wrong + 1
    return count, mean, squares, low, high
  end
  local all, apart = c + count, mean - m
  return all, m + apart * count / all, s + squares + apart * apart * (c * count / all), math.min(l, low),
    math.max(h, high)
end

local function measure(name, second, ...)
  local slices = starts_of(second)
  for i, precision in ipairs(PRECISIONS) do
    local entry, slice = precision .. ':' .. name, slices[i]
    local key = P .. 'dist:' .. entry
    local stored = try('HGET', key, slice)
    if stored then
      try('HSET', key, slice, string.format('%.0f %.17g %.17g %.17g %.17g', merged(stored, ...)))
    elseif stored == false then
      try('HSET', key, slice, string.format('%.0f %.17g %.17g %.17g %.17g', ...))
      try('ZADD', P .. 'known:dist', '0', entry)
    end
  end
end

local counters = 5 + 2 * tonumber(ARGV[4])
local exported = 5 + 2 * tonumber(ARGV[5])
for i = 6, counters, 2 do
  for second, n in string.gmatch(ARGV[i + 1], '(%S+) (%S+)') do
    second, n = tonumber(second), #n > 18 and bounded(whole(n)) or n
    wrong = wrong + add_to_slices(ARGV[i], second, n)
    local reason = string.match(ARGV[i], '^failures%.(.+)$')
    local total = reason and 'failures' or TOTALS[ARGV[i]]
    if total and not add_bounded(P .. 'stats:' .. total, reason, n) then wrong = wrong + 1 end
    if i < exported and not pcall(export, second - second % 60, ARGV[i], n) then wrong = wrong + 1 end
  end
end
local MEASURED = '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)'
for i = counters + 1, #ARGV, 2 do
  for second, count, mean, squares, low, high in string.gmatch(ARGV[i + 1], MEASURED) do
    measure(ARGV[i], tonumber(second), tonumber(count), tonumber(mean), tonumber(squares), tonumber(low),
      tonumber(high))
  end
end
return wrong
