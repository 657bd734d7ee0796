#!lua flags=no-writes
-- count_before.lua: counts the entries of a sorted set that are before an entry of the same set of another shard.
-- ARGV[1]   the sorted set, such as i:seeders   ARGV[2] '1': descending   ARGV[3] score, ARGV[4] member of that entry
-- Answer    the number
local P, call, score, member = KEYS[1], redis.call, ARGV[3], ARGV[4]
local key = P .. ARGV[1]
--@ include lib/byte_order.lua

local first = call('ZCOUNT', key, '-inf', '(' .. score)
local low, high = first, first + call('ZCOUNT', key, score, score) -- those of the same score are in order of members
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_before(call('ZRANGE', key, middle, middle)[1], member) then low = middle + 1 else high = middle end
end
return ARGV[2] == '1' and call('ZCARD', key) - low or low
