#!lua flags=allow-oom
-- begin_removal.lua: notes whose peers are to be removed.
-- ARGV[1]   an entry of `removing` (removed_users.lua)
-- Answer    nothing
local P, call = KEYS[1], redis.call
--@ include lib/removed_users.lua
note_removing(ARGV[1])
