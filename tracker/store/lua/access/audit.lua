#!lua flags=allow-oom
-- audit.lua: adds an entry to the audit log, also in a full store, and deletes the oldest ones.
-- KEYS[1]   the prefix
-- ARGV[1]   '1': the entry has further objects of a call with many   ARGV[2] max entries
-- ARGV[3]   how long entries are kept (s)   ARGV[4..] fields and values of the entry
-- Answer    the id of the entry
local P, call = KEYS[1], redis.call
local key, time, id = P .. 'audit', call('TIME'), nil

local function add(command, wanted_id)
  return command('XADD', key, 'MAXLEN', ARGV[2], wanted_id, unpack(ARGV, 4))
end

if ARGV[1] == '1' then
  key = P .. 'audit:rows'
  -- Readers merge the two streams by id: no id is in both, and the entry of the call, which follows, is the newest. An
  -- id fails where the stream has a later one.
  local before = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - 1)
  id = add(redis.pcall, before .. '-1000000')
  if type(id) ~= 'string' then id = add(redis.pcall, before .. '-*') end
end
if type(id) ~= 'string' then id = add(call, '*') end
call('XTRIM', key, 'MINID', string.format('%.0f', (time[1] - ARGV[3]) * 1000))
return id
