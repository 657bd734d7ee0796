#!lua flags=allow-oom
-- copy_users.lua: writes rows of users, as they are under the main prefix, into a shard.
-- ARGV[1]   the number of the last change that the shard had when the rows were read   ARGV[2] the number after these
-- ARGV[3..] for each: a passkey or 'deleted:<user id>'; twice the number of fields (0: there is no such passkey; -1:
--   the user has not been here, and nothing is written); pairs of field and value, with -1 the user id
-- Answer    1; 0 when the shard got other changes or one of these users meanwhile: nothing was written
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/removed_users.lua
if (call('GET', P .. 'copied') or '0') ~= ARGV[1] then return 0 end

-- The rest of the user is deleted by delete_user.lua.
local function delete(uid)
  for _, passkey in ipairs(call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')) do
    call('UNLINK', P .. 'user:' .. passkey)
  end
  call('ZREMRANGEBYSCORE', P .. 'users', uid, uid)
  call('SADD', P .. 'deleting', uid)
  note_removed_user(uid)
  hide_user(uid, false)
end

-- If two passkeys have one id, the listed one keeps it.
local function copy(passkey, first, last)
  call('UNLINK', P .. 'user:' .. passkey)
  call('ZREM', P .. 'users', passkey)
  if last < first then return end
  call('HSET', P .. 'user:' .. passkey, unpack(ARGV, first, last))
  local uid = call('HGET', P .. 'user:' .. passkey, 'user_id') or ''
  if not is_user_id(uid) or is_of_another(uid, passkey) then return end
  call('ZREMRANGEBYSCORE', P .. 'users', uid, uid)
  call('ZADD', P .. 'users', uid, passkey)
  redis.pcall('HSET', P .. 'u:' .. uid, 'passkey', passkey)
  local v = call('HMGET', P .. 'user:' .. passkey, 'enabled', 'visible', 'group')
  note_if_refused(uid, v[1], v[3])
  if v[2] then hide_user(uid, v[2] == '0') end
end

local at = 3
while ARGV[at] do
  local fields = tonumber(ARGV[at + 1])
  if fields < 0 then -- after `tracker reshard`, a shard may have nothing of a user but sets of torrents
    local user = P .. 'u:' .. ARGV[at + 2]
    local found = call('EXISTS', P .. 'user:' .. ARGV[at], user, user .. ':active', user .. ':complete',
      user .. ':incomplete', user .. ':hnr')
    if found > 0 then return 0 end
  end
  at = at + 2 + math.abs(fields)
end

at = 3
while ARGV[at] do
  local uid, fields = string.match(ARGV[at], '^deleted:(%d+)$'), tonumber(ARGV[at + 1])
  if fields >= 0 then
    if uid then delete(uid) else copy(ARGV[at], at + 2, at + 1 + fields) end
  end
  at = at + 2 + math.abs(fields)
end
call('SET', P .. 'copied', ARGV[2])
return 1
