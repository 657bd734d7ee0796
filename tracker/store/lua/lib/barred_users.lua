-- barred_users.lua: users who may have no peers: disabled and deleted ones, and those whose group may not announce.
--
-- A site may have replaced a passkey whose row is missing (docs/private.md), so that alone bars no user: if the user
-- was deleted, the peers time out.
--@ include lib/groups.lua
local barred_users = {}
local function is_user_barred(uid)
  local barred = barred_users[uid]
  if barred == nil then
    local passkey = redis.pcall('HGET', P .. 'u:' .. uid, 'passkey')
    barred = not passkey or redis.pcall('SISMEMBER', P .. 'deleting', uid) == 1
    if not barred and type(passkey) == 'string' then
      local v = redis.pcall('HMGET', P .. 'user:' .. passkey, 'enabled', 'group')
      local group = find_group(v[2])
      barred = v[1] == '0' or group and group.may_announce == '0' or false
    end
    barred_users[uid] = barred
  end
  return barred
end
