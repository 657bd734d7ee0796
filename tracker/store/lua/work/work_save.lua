#!lua
-- work_save.lua: creates a project of work, or changes one.
-- ARGV[1]   project   ARGV[2] 'create' or 'edit'   ARGV[3..] pairs of field and value
-- Answer    1; 0 when the project to create exists, or the one to change does not
local P, call = KEYS[1], redis.call
local key = P .. 'w:' .. ARGV[1]
call('SCARD', P .. 'w')
local deleting = call('HGET', key, 'deleting')
if deleting or (call('EXISTS', key) == 1) == (ARGV[2] == 'create') then return 0 end
if #ARGV > 3 then call('HSET', key, unpack(ARGV, 3)) end
call('SADD', P .. 'w', ARGV[1])
return 1
