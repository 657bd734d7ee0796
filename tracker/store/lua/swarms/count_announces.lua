#!lua flags=allow-oom
-- count_announces.lua: adds announces that a process has counted to their users and torrents. It also runs in a full
-- store, which answers such announces; it adds no keys.
-- ARGV[1..] pairs: a user's id, or an info hash (40 hex digits); number of announces
-- Answer    nothing
local P = KEYS[1]
local sharded = string.find(P, ':{%d+%l+}:$') -- the user's sums on the main store are written again
--@ include lib/numbers.lua
COUNTER_MAX, MAX_COUNT = '9007199254740991', MAX_EXACT

-- Adds to a user or torrent that exists; it may have been deleted meanwhile. Nearly always the field is there, which
-- saves a look.
local function add_to(name, number)
  local is_user = #name < 40
  local key = is_user and P .. 'u:' .. name or P .. 't:' .. name
  local sum = add_bounded(key, 'announces', number)
  if sum == tonumber(number) and (is_user and redis.call('HLEN', key) == 1
      or not is_user and redis.call('HEXISTS', key, 'tid') == 0) then
    redis.call('HDEL', key, 'announces')
  elseif is_user and sharded then
    redis.pcall('SADD', P .. 'changed', name)
  end
end

for i = 1, #ARGV, 2 do add_to(ARGV[i], ARGV[i + 1]) end
