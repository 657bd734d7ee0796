#!lua flags=allow-oom
-- clean.lua: deletes old slices of a page of counters or distributions of one precision. A script is atomic, so no
-- other client sees a counter with slices but without its entry.
-- ARGV[1]   now (epoch s)   ARGV[2] 'count' or 'dist'   ARGV[3] precision (s)
-- ARGV[4]   the name to go on after ('' at the start)   ARGV[5] how many names
-- Answer    { the name to go on after ('': no more pages), slices deleted, entries deleted, keys of a wrong type }
local P, call = KEYS[1], redis.call
local now, kind, precision, page_size = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
local RETAINED, FIELDS_PER_CALL = 120, 500
local known, slices_of = P .. 'known:', P .. 'count:'
if kind == 'dist' then known, slices_of = P .. 'known:dist', P .. 'dist:' end
local oldest = now - now % precision - (RETAINED - 1) * precision
local beginning = ARGV[3] .. ':'
local slices, entries, wrong = 0, 0, 0

-- A slice of the future is kept until its time is over, unless a wrong clock wrote many of them.
local function clean(key)
  local stored, old = call('HKEYS', key), {}
  local newest = #stored > 4 * RETAINED and now + RETAINED * precision or math.huge
  for _, field in ipairs(stored) do
    local slice = tonumber(field)
    if not slice or slice < oldest or slice > newest then old[#old + 1] = field end
  end
  for i = 1, #old, FIELDS_PER_CALL do
    slices = slices + call('HDEL', key, unpack(old, i, math.min(#old, i + FIELDS_PER_CALL - 1)))
  end
  return #stored == #old
end

local from = ARGV[4] == '' and '[' .. beginning or '(' .. beginning .. ARGV[4]
local page = call('ZRANGEBYLEX', known, from, '(' .. ARGV[3] .. ';', 'LIMIT', 0, page_size) -- ';' follows ':'
for _, entry in ipairs(page) do
  local ok, is_empty = pcall(clean, slices_of .. entry)
  if not ok then
    wrong = wrong + 1
  elseif is_empty then
    entries = entries + call('ZREM', known, entry)
  end
end
return { #page < page_size and '' or string.sub(page[#page], #beginning + 1), slices, entries, wrong }
