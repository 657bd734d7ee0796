#!lua
-- add_user.lua: creates a user.
-- ARGV[1]   the user, as user_fields.lua reads it; the id '' means one above all known ids
-- Answer    the user id; '' when the id is taken; false when the passkey is taken
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/user_fields.lua
--@ include lib/edits.lua
local user = read_user(ARGV[1])
local uid, passkey = user.id, user.passkey
if call('EXISTS', P .. 'user:' .. passkey) == 1 then return false end
if uid == '' then
  uid = new_user_id()
elseif is_user_taken(uid) then
  return ''
else
  raise_last_id(uid)
end
local before = stored_user(uid)
call('ZADD', P .. 'users', uid, passkey)
user.profile.passkey = passkey
local rights = user.rights
rights.user_id, rights.enabled, rights.can_leech = uid, rights.enabled or '1', rights.can_leech or '1'
write_rights(passkey, user, uid)
write_account(uid, user, before, true)
write_user_lists()
record_edit(uid, '')
return uid
