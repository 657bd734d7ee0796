#!lua
-- add_token.lua: creates an API token with a unique name.
-- KEYS[1]   the prefix
-- ARGV[1]   token id   ARGV[2] name   ARGV[3] scope   ARGV[4] SHA-256 of its text   ARGV[5] now (epoch s)
-- ARGV[6]   max tokens
-- Answer    1; 0 when the name is taken; -1 when there are already that many tokens
local P, call = KEYS[1], redis.call
local ids = call('ZRANGE', P .. 'admin:tokens', 0, -1)
if #ids >= tonumber(ARGV[6]) then return -1 end
for _, id in ipairs(ids) do
  if call('HGET', P .. 'admin:token:' .. id, 'name') == ARGV[2] then return 0 end
end
call('ZADD', P .. 'admin:tokens', 0, ARGV[1])
call('HSET', P .. 'admin:token:' .. ARGV[1], 'name', ARGV[2], 'scope', ARGV[3], 'hash', ARGV[4], 'created', ARGV[5])
return 1
