#!lua flags=allow-oom
-- begin_removal.lua: notes a client whose peers are to be removed.
-- KEYS[1]   the prefix   ARGV[1] prefix of peer ids (hex)
-- Answer    1
local P, call = KEYS[1], redis.call
--@ include lib/removing.lua
note_removing('client:' .. ARGV[1])
return 1
