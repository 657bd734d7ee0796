#!lua
-- deny.lua: adds a torrent to the deny list, registered or not.
-- ARGV[1]   info hash (40 hex digits)   ARGV[2] now (epoch s)   ARGV[3] the reason, which its peers get
-- Answer    1 when it was denied already, else 0
local P, call = KEYS[1], redis.call
--@ include lib/edits.lua
--@ include lib/refused_torrents.lua
local key, denied = P .. 'deny:' .. ARGV[1], P .. 'denied'
call('ZCARD', denied) -- a key of a wrong type fails here, before the first write
local before = call('EXISTS', key)
call('SET', key, ARGV[3])
call('ZADD', denied, 'NX', ARGV[2], ARGV[1])
note_refusal(ARGV[1])
record_edit('', ARGV[1])
return before
