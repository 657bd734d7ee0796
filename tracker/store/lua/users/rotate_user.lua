#!lua
-- rotate_user.lua: gives a user a new passkey; the old one becomes invalid.
-- ARGV[1]   old passkey   ARGV[2] new passkey   ARGV[3] now (epoch s)
-- Answer    the user id; '' when the new passkey is taken; false when there is no such user
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/edits.lua
local old, new = ARGV[1], ARGV[2]
local uid = call('HGET', P .. 'user:' .. old, 'user_id')
if not uid or uid == '' then return false end
if call('EXISTS', P .. 'user:' .. new) == 1 then return '' end
-- A user with an unusable id is not listed, and a new passkey does not change that.
local refused = adopt(uid, old)
call('RENAME', P .. 'user:' .. old, P .. 'user:' .. new)
call('HSET', P .. 'user:' .. new, 'old_passkey', old, 'rotated', ARGV[3]) -- for `stopped` of peers that still use it
note_copy(old)
note_copy(new)
if not refused then
  call('ZREM', P .. 'users', old)
  call('ZADD', P .. 'users', uid, new)
  call('HSET', P .. 'u:' .. uid, 'passkey', new)
end
record_edit(uid, '')
return uid
