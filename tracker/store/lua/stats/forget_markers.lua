#!lua flags=allow-oom
-- forget_markers.lua: deletes markers of unique users to make room for peers, and notes in which periods the counts may
-- be too high: an address without a marker counts again.
-- ARGV[1]   the periods, with a space between them   ARGV[2..] the markers, without the prefix, at most 100
-- Answer    how many were deleted
local P, call = KEYS[1], redis.call
local marks = P .. 'unique:forgotten'
call('HLEN', marks) -- of a wrong type, it fails here, before the first write
local markers = {}
for i = 2, #ARGV do markers[i - 1] = P .. ARGV[i] end
local deleted = call('UNLINK', unpack(markers))
if deleted > 0 then
  for period in string.gmatch(ARGV[1], '%S+') do call('HINCRBY', marks, period, deleted) end
end
return deleted
