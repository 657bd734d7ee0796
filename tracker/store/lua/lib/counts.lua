-- counts.lua: counts of a torrent as numbers.

-- Stored counts by their text; false for text that is not a number, because another program wrote it. It counts as 0
-- until the sweep recounts the swarm. Short ones are kept: a look is cheaper than reading a number. They are few, as
-- what scripts keep must fit into the caches of the CPU.
local count_of = setmetatable({ [false] = false }, { __index = function(known, digits)
  local number = tonumber(digits or '')
  number = number and number >= 0 and number < 1e15 and number % 1 == 0 and number or false
  if digits and #digits <= 3 then known[digits] = number end
  return number
end })

-- The field `arrays` of a torrent: how many slots its arrays s4, l4, s6, l6, sw and lw have, then how many networks are
-- crowded (addresses.lua). When all but s4 and l4 are 0, only these two are stored. It is one field for seven numbers
-- because each field that an announce reads costs a third of a command. The numbers of texts that were read are kept.
-- luacheck: push ignore 231 241 (some scripts need only some of it)
local arrays_of, read_arrays = {}
do
local MAX_KEPT, MAX_TEXT, kept = 500, 100, 0

function read_arrays(text)
  local known, numbers = count_of, { 0, 0, 0, 0, 0, 0, 0 }
  local s4, l4 = string.match(text or '', '^(%d+) (%d+)$')
  if s4 then
    numbers[1], numbers[2] = known[s4] or 0, known[l4] or 0
  else
    local found = { string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
    s4 = found[1]
    for i, digits in ipairs(found) do numbers[i] = known[digits] or 0 end
  end
  if kept == MAX_KEPT then arrays_of, kept = {}, 0 end
  if s4 and #text < MAX_TEXT then arrays_of[text], kept = numbers, kept + 1 end
  return numbers
end
end
-- luacheck: pop
