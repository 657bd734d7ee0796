#!lua flags=allow-oom
-- count_announces.lua: adds announces that a process has counted to their users and torrents. It also runs in a full
-- store, which answers such announces; it adds no keys.
-- ARGV[1..] pairs: t and an info hash (hex), or u and a passkey; number of announces
-- Answer    nothing
local P = KEYS[1]
local sharded = string.find(P, ':{%d+%l+}:$') -- the user's sums on the main store are written again
--@ include lib/numbers.lua
COUNTER_MAX, MAX_COUNT = '9007199254740991', MAX_EXACT

-- Adds to a user or torrent that exists; it may have been deleted meanwhile. Nearly always the field is there, which
-- saves a look.
local function add_to(kind, name, number)
  local uid = kind == 'u' and redis.pcall('HGET', P .. 'user:' .. name, 'user_id')
  if kind == 'u' and type(uid) ~= 'string' then return end
  local key = uid and P .. 'u:' .. uid or P .. 't:' .. name
  local sum = add_bounded(key, 'announces', number)
  if sum == tonumber(number) and (uid and redis.call('HLEN', key) == 1
      or not uid and redis.call('HEXISTS', key, 'tid') == 0) then
    redis.call('HDEL', key, 'announces')
  elseif uid and sharded then
    redis.pcall('SADD', P .. 'changed', uid)
  end
end

for i = 1, #ARGV, 2 do add_to(string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2), ARGV[i + 1]) end
