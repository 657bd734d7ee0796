#!lua
-- reset_score.lua: sets the scores of torrents to 1. The result of a scoring in progress is ignored.
-- ARGV[1]   now (epoch s)   ARGV[2..] torrent ids
-- Answer    the number of these torrents that exist
local P, call = KEYS[1], redis.call
local scores, times, leases = P .. 'i:score', P .. 'i:processed', P .. 'leases:torrents'
--@ include lib/leases.lua

local found = 0
call('ZCARD', scores)
call('ZCARD', times)
call('ZCARD', leases)
call('HLEN', leases .. ':tokens')
for i = 2, #ARGV do
  local tid = ARGV[i]
  if call('EXISTS', P .. 'torrent_id:' .. tid) == 1 then
    call('ZADD', scores, 1, tid)
    call('ZADD', times, 'NX', ARGV[1], tid)
    release_lease(leases, tid)
    found = found + 1
  end
end
return found
