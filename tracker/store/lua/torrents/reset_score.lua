#!lua
-- reset_score.lua: sets the score of a torrent to 1. The result of a scoring in progress is ignored.
-- ARGV[1]   now (epoch s)   ARGV[2] torrent id
-- Answer    nothing
local P, call, tid = KEYS[1], redis.call, ARGV[2]
local scores, times, leases = P .. 'i:score', P .. 'i:processed', P .. 'leases:torrents'
--@ include lib/leases.lua

if call('EXISTS', P .. 'torrent_id:' .. tid) == 0 then return end
for _, index in ipairs({ times, leases }) do call('ZCARD', index) end -- of a wrong type: before the first write
call('HLEN', leases .. ':tokens')
call('ZADD', scores, 1, tid)
call('ZADD', times, 'NX', ARGV[1], tid)
release_lease(leases, tid)
