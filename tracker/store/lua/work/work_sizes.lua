#!lua
-- work_sizes.lua: adds up the sizes of some registered torrents by seeders. Those of unknown size are left out.
-- ARGV[1]   cursor ('0' at the start)   ARGV[2] how many torrents, approximately
-- ARGV[3..] the least number of seeders of each class but the first, ascending
-- Answer    { next cursor ('0' at the end), the bytes of each class }
local P, call = KEYS[1], redis.call

local MAX_DIGITS = 15 -- a petabyte: no torrent is larger
local least, sums = {}, { 0 }
for i = 3, #ARGV do least[i - 2], sums[i - 1] = tonumber(ARGV[i]), 0 end

-- MGET, because GET would fail on a key of another type.
local page = call('ZSCAN', P .. 'i:seeders', ARGV[1], 'COUNT', ARGV[2])
for i = 1, #page[2], 2 do
  local ih, class = call('MGET', P .. 'torrent_id:' .. page[2][i])[1], 1
  local size = ih and call('MGET', P .. 'info_hash:' .. ih)[1] and redis.pcall('HGET', P .. 't:' .. ih, 'size')
  if type(size) == 'string' and #size <= MAX_DIGITS and string.match(size, '^%d+$') then
    for n, seeders in ipairs(least) do
      if tonumber(page[2][i + 1]) >= seeders then class = n + 1 end
    end
    sums[class] = sums[class] + tonumber(size)
  end
end
for class, sum in ipairs(sums) do sums[class] = string.format('%.0f', sum) end
return { page[1], sums }
