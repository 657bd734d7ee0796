#!lua
-- add_user.lua: makes a user.
-- KEYS[1]   the prefix
-- ARGV[1]   user id, '' for the next one free   ARGV[2] passkey   ARGV[3] can_leech ('0' or '1')
-- Answer    the user id; '' when it is taken; false when the passkey is taken
local P, call = KEYS[1], redis.call
local uid, passkey = ARGV[1], ARGV[2]
if call('EXISTS', P .. 'user:' .. passkey) == 1 then return false end

-- Totals alone do not make a user: a site may have brought them along before. Their passkey does, if it is one.
-- What is left of one who is being deleted is not the next one's.
local function taken(id)
  if call('ZCOUNT', P .. 'users', id, id) > 0 or call('SISMEMBER', P .. 'deleting', id) == 1 then return true end
  local theirs = call('HGET', P .. 'u:' .. id, 'passkey')
  return theirs and call('EXISTS', P .. 'user:' .. theirs) == 1
end

if uid == '' then
  repeat uid = string.format('%.0f', call('INCR', P .. 'user_id')) until not taken(uid)
    and call('EXISTS', P .. 'u:' .. uid) == 0
elseif taken(uid) then
  return ''
end
call('ZADD', P .. 'users', uid, passkey)
call('HSET', P .. 'u:' .. uid, 'passkey', passkey)
call('HSET', P .. 'user:' .. passkey, 'user_id', uid, 'enabled', '1', 'can_leech', ARGV[3])
return uid
