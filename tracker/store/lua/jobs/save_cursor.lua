#!lua
-- save_cursor.lua: stores how far a job has come, so that its next run goes on from there.
-- ARGV[1]   queue   ARGV[2] id   ARGV[3] token   ARGV[4] cursor
-- Answer    1, or 0 when another worker has the job now
local P, call = KEYS[1], redis.call
--@ include lib/leases.lua

if not has_lease(P .. 'q:' .. ARGV[1] .. ':running', ARGV[2], ARGV[3]) then return 0 end
call('HSET', P .. 'job:' .. ARGV[2], 'cursor', ARGV[4])
return 1
