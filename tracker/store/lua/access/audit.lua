#!lua flags=allow-oom
-- audit.lua: adds an entry to the audit log, with its further entries, also in a full store, and deletes the oldest
-- ones.
-- KEYS[1]   the prefix
-- ARGV[1]   max entries   ARGV[2] max further entries   ARGV[3] how long entries are kept (s)
-- ARGV[4]   counts of the entry   ARGV[5] how many entries, at least one   ARGV[6..] the objects of each entry
-- ARGV[..]  fields and values that all of them have
-- Answer    the id of the entry
local P, call = KEYS[1], redis.call
local entries = tonumber(ARGV[5])
local last = 5 + entries -- of the objects
local oldest = string.format('%.0f', (call('TIME')[1] - ARGV[3]) * 1000)

-- The entry comes first: if the further ones cannot be written, it stays.
local id = call('XADD', P .. 'audit', 'MAXLEN', ARGV[1], '*', 'objects', ARGV[6], 'counts', ARGV[4],
  unpack(ARGV, last + 1))
call('XTRIM', P .. 'audit', 'MINID', oldest)
if entries == 1 then return id end

local function add(command, wanted_id, objects)
  return command('XADD', P .. 'audit:rows', 'MAXLEN', ARGV[2], wanted_id, 'objects', objects, unpack(ARGV, last + 1))
end

-- Readers merge the two streams by id, newest first: no id is in both, the entry is newer than its further ones, and
-- the first of those is the newest. An id fails where the stream has a later one.
local before = string.format('%.0f', string.match(id, '^%d+') - 1)
for number = last, 7, -1 do
  local added = add(redis.pcall, before .. '-1000000', ARGV[number])
  if type(added) ~= 'string' then added = add(redis.pcall, before .. '-*', ARGV[number]) end
  if type(added) ~= 'string' then add(call, '*', ARGV[number]) end
end
call('XTRIM', P .. 'audit:rows', 'MINID', oldest)
return id
