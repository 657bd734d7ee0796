#!lua flags=no-writes
-- dump_keys.lua: reads keys as RESTORE takes them.
-- ARGV      keys, without the prefix
-- Answer    for each key: when it expires (epoch ms; -1 never, -2 there is no such key); its dump, false without a key
local P, call = KEYS[1], redis.call
local found = {}
for i, name in ipairs(ARGV) do
  found[2 * i - 1] = call('PEXPIRETIME', P .. name)
  found[2 * i] = call('DUMP', P .. name)
end
return found
