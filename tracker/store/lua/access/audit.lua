#!lua flags=allow-oom
-- audit.lua: adds an entry to the audit log, also in a full store, and deletes the oldest ones.
-- KEYS[1]   the prefix
-- ARGV[1]   max entries   ARGV[2] how long entries are kept (s)   ARGV[3..] fields and values of the entry
-- Answer    the id of the entry
local P, call = KEYS[1], redis.call
local id = call('XADD', P .. 'audit', 'MAXLEN', ARGV[1], '*', unpack(ARGV, 3))
call('XTRIM', P .. 'audit', 'MINID', string.format('%.0f', (call('TIME')[1] - ARGV[2]) * 1000))
return id
