#!lua flags=allow-oom
-- audit.lua: adds an entry to the audit log, or further entries of one, also in a full store; deletes the oldest ones.
-- ARGV[1]   max entries   ARGV[2] max further entries   ARGV[3] how long entries are kept (s)
-- ARGV[4]   the id of the entry; empty: it is added   ARGV[5] its objects   ARGV[6] its counts
-- ARGV[7]   how many further entries   ARGV[8..] the objects of each, the newest first
-- ARGV[..]  fields and values that all of them have
-- Answer    the id of the entry
local P, call = KEYS[1], redis.call
local id, last = ARGV[4], 7 + ARGV[7]
local oldest = string.format('%.0f', (call('TIME')[1] - ARGV[3]) * 1000)

if id == '' then -- before the further ones: if they cannot be written, it stays
  id = call('XADD', P .. 'audit', 'MAXLEN', ARGV[1], '*', 'objects', ARGV[5], 'counts', ARGV[6],
    unpack(ARGV, last + 1))
  call('XTRIM', P .. 'audit', 'MINID', oldest)
end
if last == 7 then return id end

local function add(command, wanted_id, objects)
  return command('XADD', P .. 'audit:rows', 'MAXLEN', ARGV[2], wanted_id, 'objects', objects, unpack(ARGV, last + 1))
end

-- Readers merge the two streams by id, newest first: no id is in both, and the entry is newer than its further ones. An
-- id fails where the stream has a later one.
local before = string.format('%.0f', string.match(id, '^%d+') - 1)
for number = last, 8, -1 do
  local added = number == last and add(redis.pcall, before .. '-1000000', ARGV[number])
  if type(added) ~= 'string' then added = add(redis.pcall, before .. '-*', ARGV[number]) end
  if type(added) ~= 'string' then add(call, '*', ARGV[number]) end
end
call('XTRIM', P .. 'audit:rows', 'MINID', oldest)
return id
