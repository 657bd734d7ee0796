-- adoption.lua: adopts a user that a site wrote (`HSET t:user:<passkey> user_id 77`): from then on the user is listed,
-- and known by id.
--@ include lib/user_ids.lua
--@ include lib/user_id_check.lua
--@ include lib/user_copies.lua

-- `uid` is the id in the row of the passkey. Returns nil, or the reason for a refusal. Removes listed passkeys that are
-- deleted.
local function adopt(uid, passkey)
  if not is_user_id(uid) then return 'bad user id' end
  if call('SISMEMBER', P .. 'deleting', uid) == 1 or is_of_another(uid, passkey) then return 'user id in use' end
  call('HLEN', P .. 'u:' .. uid)
  raise_last_id(uid)
  if not is_listed(uid, passkey) then
    for _, former in ipairs(call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')) do note_copy(former) end
    call('ZREMRANGEBYSCORE', P .. 'users', uid, uid)
    call('ZADD', P .. 'users', uid, passkey)
  end
  call('HSET', P .. 'u:' .. uid, 'passkey', passkey)
end
