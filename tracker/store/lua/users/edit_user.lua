#!lua
-- edit_user.lua: sets fields of a user.
-- ARGV[1]   the user, as user_fields.lua reads it, by passkey or by id
-- ARGV[2]   the key of a request that may be repeated, or '': it adds to totals once
-- Answer    the user id; '' when fields of `u:<uid>` are given and the id is invalid or belongs to another passkey;
--   false when there is no such user
local P, call = KEYS[1], redis.call
--@ include lib/user_fields.lua
--@ include lib/edits.lua
local user = cjson.decode(ARGV[1])
if user.passkey == '' then user.passkey = call('ZRANGE', P .. 'users', user.id, user.id, 'BYSCORE')[1] or '' end
local uid = call('HGET', P .. 'user:' .. user.passkey, 'user_id')
if not uid or uid == '' then return false end
local beyond_rights = next(user.profile) or next(user.totals) or next(user.adds)
if beyond_rights and adopt(uid, user.passkey) then return '' end
local before = beyond_rights and stored_user(uid)
if next(user.adds) and not is_first(ARGV[2], '0') then user.adds = {} end
write_rights(user.passkey, user.rights, is_user_id(uid) and is_listed(uid, user.passkey) and uid)
if beyond_rights then write_account(uid, user, before, true) end
write_index_entries()
record_edit(uid, '')
return uid
