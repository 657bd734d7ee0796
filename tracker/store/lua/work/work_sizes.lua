#!lua
-- work_sizes.lua: adds up the sizes of some registered torrents by seeders. Those of unknown size are left out.
-- ARGV[1]   cursor ('0' at the start)   ARGV[2] how many torrents, approximately
-- ARGV[3..] the least number of seeders of each class but the first, ascending
-- Answer    { next cursor ('0' at the end), the bytes of each class }
local P, call = KEYS[1], redis.call

local MAX_DIGITS = 15 -- a petabyte: no torrent is larger
local least, sums = {}, { 0 }
for i = 3, #ARGV do
  least[i - 2], sums[i - 1] = tonumber(ARGV[i]), 0
end

-- One command for all ids costs a fraction of one command each.
local page = call('ZSCAN', P .. 'i:seeders', ARGV[1], 'COUNT', ARGV[2])
local ids, registrations = {}, {}
for i = 1, #page[2], 2 do ids[#ids + 1] = P .. 'torrent_id:' .. page[2][i] end
local hashes = #ids > 0 and call('MGET', unpack(ids)) or {}
for i, ih in ipairs(hashes) do registrations[i] = P .. 'info_hash:' .. (ih or '') end
local registered = #ids > 0 and call('MGET', unpack(registrations)) or {}
for i, tid in ipairs(registered) do
  local class, size = 1, tid and redis.pcall('HGET', P .. 't:' .. hashes[i], 'size')
  for n, number in ipairs(least) do
    if tonumber(page[2][2 * i]) >= number then class = n + 1 end
  end
  if type(size) == 'string' and #size <= MAX_DIGITS and string.match(size, '^%d+$') then
    sums[class] = sums[class] + tonumber(size)
  end
end
for class, sum in ipairs(sums) do sums[class] = string.format('%.0f', sum) end
return { page[1], sums }
