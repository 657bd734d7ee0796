#!lua flags=allow-oom
-- count_announces.lua: adds announces that a process has counted to their users and torrents. It also runs in a full
-- store, which answers such announces; it adds no keys.
-- ARGV[1..] pairs: t and an info hash (hex), or u and a passkey; number of announces
-- Answer    how many of them exist
local P, found = KEYS[1], 0
local sharded = string.find(P, ':{%d+%l+}:$') -- the user's sums on the main store are written again
--@ include lib/numbers.lua
COUNTER_MAX, MAX_COUNT = '9007199254740991', MAX_EXACT

-- The torrent may have been deleted meanwhile, and the user too.
local function key_of(kind, name)
  if kind == 't' then
    local torrent = P .. 't:' .. name
    return redis.pcall('HEXISTS', torrent, 'tid') == 1 and torrent
  end
  local uid = redis.pcall('HGET', P .. 'user:' .. name, 'user_id')
  local user = type(uid) == 'string' and P .. 'u:' .. uid
  if not user or redis.call('EXISTS', user) == 0 then return end
  if sharded then redis.pcall('SADD', P .. 'changed', uid) end
  return user
end

for i = 1, #ARGV, 2 do
  local key = key_of(string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2))
  if key then
    add_bounded(key, 'announces', ARGV[i + 1])
    found = found + 1
  end
end
return found
