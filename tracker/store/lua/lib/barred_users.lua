-- barred_users.lua: which users may have no peers: disabled and deleted ones. After `P`.
--
-- A site may have replaced a passkey whose row is missing (docs/private.md), so that alone bars no user: if the user
-- was deleted, the peers time out.
local barred_users = {}
local function is_user_barred(uid)
  local barred = barred_users[uid]
  if barred == nil then
    local passkey = redis.pcall('HGET', P .. 'u:' .. uid, 'passkey')
    barred = not passkey or redis.pcall('SISMEMBER', P .. 'deleting', uid) == 1
      or type(passkey) == 'string' and redis.pcall('HGET', P .. 'user:' .. passkey, 'enabled') == '0'
    barred_users[uid] = barred
  end
  return barred
end
