#!lua
-- restore_keys.lua: writes keys as dump_keys.lua reads them, in place of what there is.
-- ARGV      for each key: its name without the prefix; when it expires (epoch ms; 0 never); its dump
-- Answer    1
local P, call = KEYS[1], redis.call
for i = 1, #ARGV, 3 do call('RESTORE', P .. ARGV[i], ARGV[i + 1], ARGV[i + 2], 'REPLACE', 'ABSTTL') end
return 1
