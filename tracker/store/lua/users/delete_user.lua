#!lua flags=allow-oom
-- delete_user.lua: deletes a user, some torrents per call, until it answers 0. After the first call the passkey is
-- invalid, and `deleting` holds the user until all is deleted; any caller can go on. Peers must be removed first.
-- ARGV[1]   user id   ARGV[2] passkey, '' to go on   ARGV[3] max torrents of each of the user's sets
-- Answer    1 while there is more to delete; 2 while the user has peers; 0 when the user is deleted
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/removed_users.lua
local uid, passkey = ARGV[1], ARGV[2]
local user, deleting = P .. 'u:' .. uid, P .. 'deleting'
-- A passkey to which a site gave an invalid id, or another user's id, is deleted alone.
if not is_user_id(uid)
    or passkey ~= '' and call('HGET', P .. 'user:' .. passkey, 'user_id') == uid and is_of_another(uid, passkey) then
  call('UNLINK', P .. 'user:' .. passkey)
  call('ZREM', P .. 'users', passkey)
  note_copy(passkey)
  if not is_user_id(uid) then call('SREM', deleting, uid) end
  return 0
end
local listed = call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')
if passkey ~= '' and (#listed > 0 or call('HGET', P .. 'user:' .. passkey, 'user_id') == uid) then
  call('SADD', deleting, uid)
  call('UNLINK', P .. 'user:' .. passkey)
  note_copy(passkey)
  for _, other in ipairs(listed) do
    call('UNLINK', P .. 'user:' .. other)
    note_copy(other)
  end
  note_copy('deleted:' .. uid)
  hide_user(uid, false)
  call('ZREMRANGEBYSCORE', P .. 'users', uid, uid)
elseif call('SISMEMBER', deleting, uid) == 0 then
  return 0
end

local active = redis.pcall('SCARD', user .. ':active')
if type(active) == 'number' and active > 0 then
  note_removed_user(uid)
  return 2
end
local name = redis.pcall('HGET', user, 'listed')
if type(name) == 'string' then redis.pcall('ZREM', P .. 'i:user_name', name .. '\t' .. uid) end
local more = 0
for _, set in ipairs({ ':active', ':complete', ':incomplete', ':hnr' }) do
  local tids = redis.pcall('SPOP', user .. set, ARGV[3])
  if tids.err then tids = {} end -- a set of a wrong type is deleted as a whole
  for _, tid in ipairs(tids) do
    call('UNLINK', user .. ':t:' .. tid)
    redis.pcall('ZREM', P .. 'i:hnr_pending', uid .. ':' .. tid)
  end
  if #tids == tonumber(ARGV[3]) then more = 1 end
end
redis.pcall('ZREM', P .. 'i:hnr', uid)
for _, index in ipairs({ 'uploaded', 'downloaded', 'ratio', 'disabled', 'blocked' }) do
  redis.pcall('ZREM', P .. 'i:user_' .. index, uid)
end
if more == 0 then
  call('UNLINK', user, user .. ':active', user .. ':complete', user .. ':incomplete', user .. ':hnr',
    user .. ':freeleech', user .. ':unregistered')
  call('SREM', deleting, uid)
end
return more
