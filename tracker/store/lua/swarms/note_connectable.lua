#!lua
-- note_connectable.lua: saves whether a peer's endpoint accepted a connection, also for the user of the peer.
-- ARGV[1]   the endpoint, in hex   ARGV[2] '1': it did, '0': it did not, '?': not known
-- ARGV[3]   now (epoch s)   ARGV[4] how long to keep it (s)   ARGV[5] the user id, or empty
-- Answer    nothing
local P, call = KEYS[1], redis.call
local result, now, user = ARGV[2], ARGV[3], P .. 'u:' .. ARGV[5]
local field = ({ ['1'] = 'connectable_at', ['0'] = 'unconnectable_at' })[result]

call('SET', P .. 'connectable:' .. ARGV[1], result .. ' ' .. now, 'EX', ARGV[4])
-- The user may have been deleted meanwhile.
if field and ARGV[5] ~= '' and call('EXISTS', user) == 1 then call('HSET', user, field, now) end
