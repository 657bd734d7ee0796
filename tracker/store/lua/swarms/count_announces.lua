#!lua flags=allow-oom
-- count_announces.lua: adds regular announces, which a process has counted, to their torrents. It also runs in a full
-- store, which answers regular announces; it adds no keys.
-- KEYS[1]   the prefix
-- ARGV[1..] pairs: info hash (hex), number of announces
-- Answer    how many torrents exist
local P, found = KEYS[1], 0
local COUNTER_MAX = '9007199254740991'
--@ include lib/numbers.lua
--@ include lib/counters.lua
for i = 1, #ARGV, 2 do
  local key = P .. 't:' .. ARGV[i]
  -- The torrent may have been deleted meanwhile.
  if redis.pcall('HEXISTS', key, 'tid') == 1 then
    add_bounded(key, 'announces', ARGV[i + 1])
    found = found + 1
  end
end
return found
