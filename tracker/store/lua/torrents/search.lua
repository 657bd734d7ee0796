#!lua flags=no-writes
-- search.lua: looks for a part of a name in a range of the name index, in its order.
-- ARGV[1]   the part, folded as the names are   ARGV[2] position to begin at (0: the first)   ARGV[3] names to look at
-- ARGV[4]   max results   ARGV[5] info hashes that begin with this are left out ('' none)
-- Answer    { position to go on at (-1: that was the last), info hashes }
local P, part, first, max_found = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local names, left_out, found = P .. 'i:name', ARGV[5], {}
local size, position = redis.call('ZCARD', names), first
local entries = redis.call('ZRANGE', names, first, first + tonumber(ARGV[3]) - 1)
for _, entry in ipairs(entries) do
  if #found == max_found then break end
  position = position + 1
  local _, last = string.find(entry, part, 1, true) -- the first place: after the name only if it is not in the name
  if last and last < #entry - 40 then
    local ih = string.sub(entry, -40)
    if left_out == '' or string.sub(ih, 1, #left_out) ~= left_out then found[#found + 1] = ih end
  end
end
return { position < size and position or -1, found }
