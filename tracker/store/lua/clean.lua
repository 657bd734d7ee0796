#!lua flags=allow-oom
-- clean.lua: removes slices that are over from a page of the known counters or distributions of one precision. Whoever
-- counts meanwhile comes before or after: nobody sees a counter with slices and without its entry.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] 'count' or 'dist'   ARGV[3] precision (s)
-- ARGV[4]   the name to go on after ('' from the first)   ARGV[5] how many names
-- Answer    { the name to go on after ('' when this was the last page), slices removed, entries removed, keys of a
--             wrong type }
local P, now, kind, precision, most = KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
local RETAINED, CHUNK = 120, 500
local known = kind == 'count' and P .. 'known:' or P .. 'known:dist'
local oldest = now - now % precision - (RETAINED - 1) * precision
local beginning = ARGV[3] .. ':'
local slices, entries, wrong = 0, 0, 0

-- A slice that lies ahead is left until its time is over; but a clock that was wrong for long must not fill the store.
local function is_over(slice, crowded)
  return not slice or slice < oldest or (crowded and slice > now + RETAINED * precision)
end

local function clean(key)
  local stored = redis.call('HKEYS', key)
  local over = {}
  for _, field in ipairs(stored) do
    if is_over(tonumber(field), #stored > 4 * RETAINED) then over[#over + 1] = field end
  end
  for i = 1, #over, CHUNK do
    slices = slices + redis.call('HDEL', key, unpack(over, i, math.min(#over, i + CHUNK - 1)))
  end
  return #stored == #over
end

local from = ARGV[4] == '' and '[' .. beginning or '(' .. beginning .. ARGV[4]
local page = redis.call('ZRANGEBYLEX', known, from, '(' .. ARGV[3] .. ';', 'LIMIT', 0, most) -- ';' comes after ':'
for _, entry in ipairs(page) do
  local ok, empty = pcall(clean, P .. kind .. ':' .. entry)
  if not ok then
    wrong = wrong + 1
  elseif empty then
    entries = entries + redis.call('ZREM', known, entry)
  end
end
return { #page < most and '' or string.sub(page[#page], #beginning + 1), slices, entries, wrong }
