-- numbers.lua: numbers from text and to text, and counters in the store.
-- luacheck: push ignore 211 (most scripts need only some of it)
local MAX_EXACT = 9007199254740991 -- the largest whole number that a double holds exactly (2^53 - 1)

-- Any text as a whole number; 0 for text that is not a number.
local function whole(text)
  local n = tonumber(text or '')
  if not n or n ~= n then return 0 end
  return n < 0 and math.ceil(n) or math.floor(n)
end

-- A field that another program may have overwritten, as a whole number from 0 to MAX_EXACT.
local function whole_field(text)
  if not text then return 0 end
  local number = tonumber(text)
  if number and number >= 0 and number <= MAX_EXACT and number % 1 == 0 then return number end
  return math.min(MAX_EXACT, math.max(0, whole(text)))
end

local function decimal(number)
  return string.format('%.0f', number)
end

-- INCRBY and HINCRBY fail when the sum exceeds 64 bits and when the counter is not a whole number. An announce that
-- fails after its first write is half applied. add_bounded() therefore never fails: it keeps the counter within
-- COUNTER_MAX and overwrites a value that is not a number. Scripts may lower both.
local COUNTER_MAX = '9223372036854775807' -- what Redis counts to
local MAX_COUNT = tonumber(COUNTER_MAX)

local function bounded(n)
  if n >= MAX_COUNT then return COUNTER_MAX end
  if n <= -MAX_COUNT then return '-' .. COUNTER_MAX end
  return decimal(n)
end

-- Adds `by`, decimal digits or a number up to 2^53, to a STRING, or to `field` of a HASH. Returns the sum, or nil for a
-- key of another type, which stays as it is.
local function add_bounded(key, field, by)
  local sum, held
  if field then sum = redis.pcall('HINCRBY', key, field, by) else sum = redis.pcall('INCRBY', key, by) end
  if type(sum) == 'number' then
    if sum <= MAX_COUNT and sum >= -MAX_COUNT then return sum end
  else
    if field then held = redis.pcall('HGET', key, field) else held = redis.pcall('GET', key) end
    if type(held) == 'table' then return end
    sum = whole(held) + whole(by)
  end
  local right = bounded(sum)
  if field then redis.call('HSET', key, field, right) else redis.call('SET', key, right) end
  return tonumber(right)
end
-- luacheck: pop
