#!lua flags=no-writes
-- read_torrents.lua: reads torrents.
-- KEYS[1]   the prefix
-- ARGV      info hashes (40 hex digits)
-- Answer    for each: its registered id or nil, the reason of its denial or nil, pairs of field and value
local P, call = KEYS[1], redis.call
local answers = {}
for i, ih in ipairs(ARGV) do
  local keys = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local fields = redis.pcall('HGETALL', P .. 't:' .. ih)
  answers[i] = { keys[1], keys[2], fields.err and {} or fields }
end
return answers
