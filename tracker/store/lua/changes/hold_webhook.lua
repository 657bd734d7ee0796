#!lua flags=allow-oom
-- hold_webhook.lua: holds or renews the right to deliver changes to a URL, and writes the state of its deliveries.
-- KEYS[1]   the prefix
-- ARGV[1]   id of the URL   ARGV[2] the caller's token   ARGV[3] how long the right lasts (ms; 0: it ends now)
-- ARGV[4]   how long the state is kept (s)
-- ARGV[5..] pairs of field and value to write
-- Answer    the state as a flat list of fields and values; nil if another caller has the right, or if the caller has
--   pairs to write and its right has ended: then nothing changed. Another caller may have delivered meanwhile.
local P, call = KEYS[1], redis.call
local state = P .. 'webhook:' .. ARGV[1]
local lease = state .. ':lease'
local holder = call('GET', lease)
if holder ~= ARGV[2] and (holder or #ARGV > 4) then return nil end
call('HLEN', state)
if tonumber(ARGV[3]) > 0 then call('SET', lease, ARGV[2], 'PX', ARGV[3]) else call('DEL', lease) end
if #ARGV > 4 then call('HSET', state, unpack(ARGV, 5)) end
call('EXPIRE', state, ARGV[4])
return call('HGETALL', state)
