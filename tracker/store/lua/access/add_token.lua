#!lua
-- add_token.lua: creates an API token with a unique name.
-- ARGV[1]   token id   ARGV[2] name   ARGV[3] max tokens   ARGV[4..] its fields and values
-- Answer    1; 0 when the name is taken; -1 when there are already that many tokens
local P, call = KEYS[1], redis.call
local ids = call('ZRANGE', P .. 'admin:tokens', 0, -1)
if #ids >= tonumber(ARGV[3]) then return -1 end
for _, id in ipairs(ids) do
  if call('HGET', P .. 'admin:token:' .. id, 'name') == ARGV[2] then return 0 end
end
call('ZADD', P .. 'admin:tokens', 0, ARGV[1])
call('HSET', P .. 'admin:token:' .. ARGV[1], unpack(ARGV, 4))
return 1
