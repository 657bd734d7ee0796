#!lua flags=no-writes
-- session.lua: reads a session of the dashboard together with its token.
-- ARGV[1]   SHA-256 of the session's secret   ARGV[2] fields of the token, separated by spaces
-- ARGV[3..] fields of the session
-- Answer    the values of the session's fields; if it has a token, also those of the token's fields, and its last use
local P, call, names = KEYS[1], redis.call, {}
local session = P .. 'admin:session:' .. ARGV[1]
local row, token = call('HMGET', session, unpack(ARGV, 3)), call('HGET', session, 'token')
if not token or token == '' then return { row } end
for name in string.gmatch(ARGV[2], '%S+') do names[#names + 1] = name end
return { row, call('HMGET', P .. 'admin:token:' .. token, unpack(names)), call('ZSCORE', P .. 'admin:tokens', token) }
