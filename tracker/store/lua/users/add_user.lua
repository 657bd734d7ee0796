#!lua
-- add_user.lua: creates a user.
-- KEYS[1]   the prefix
-- ARGV      the user, as user_fields.lua reads it; the id '' means one above all known ids
-- Answer    the user id; '' when the id is taken; false when the passkey is taken
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/new_user_id.lua
--@ include lib/names.lua
--@ include lib/user_ranks.lua
--@ include lib/user_fields.lua
--@ include lib/edits.lua
local user = read_user(1)
local uid, passkey = user.id, user.passkey
if call('EXISTS', P .. 'user:' .. passkey) == 1 then return false end
if uid == '' then
  uid = new_user_id()
elseif is_user_taken(uid) then
  return ''
else
  raise_last_id(uid)
end
call('ZADD', P .. 'users', uid, passkey)
call('HSET', P .. 'u:' .. uid, 'passkey', passkey)
call('HSET', P .. 'user:' .. passkey, 'user_id', uid, 'enabled', '1', 'can_leech', '1')
write_user(uid, passkey, user, true)
rank_users({ uid })
record_edit(uid, '')
return uid
