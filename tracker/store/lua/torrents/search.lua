#!lua flags=no-writes
-- search.lua: looks for a part of a name among so many names, in their order.
-- KEYS[1]   the prefix
-- ARGV[1]   the part, folded as the names are   ARGV[2] the name to begin with (0 the first)   ARGV[3] how many to look at
-- ARGV[4]   most to find   ARGV[5] info hashes that begin with this are left out ('' none)
-- Answer    { the name to go on with (-1: that was the last), info hashes }
local P, part, first, most = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local names, left_out, found = P .. 'i:name', ARGV[5], {}
local size, next = redis.call('ZCARD', names), first
local entries = redis.call('ZRANGE', names, first, first + tonumber(ARGV[3]) - 1)
for _, entry in ipairs(entries) do
  if #found == most then break end
  next = next + 1
  local ih = string.sub(entry, -40)
  if string.find(string.sub(entry, 1, -42), part, 1, true)
      and (left_out == '' or string.sub(ih, 1, #left_out) ~= left_out) then
    found[#found + 1] = ih
  end
end
return { next < size and next or -1, found }
