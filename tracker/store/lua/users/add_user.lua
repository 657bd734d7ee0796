#!lua
-- add_user.lua: creates a user.
-- KEYS[1]   the prefix
-- ARGV[1]   user id, '' for one above all known ids   ARGV[2] passkey   ARGV[3] can_leech ('0' or '1')
-- Answer    the user id; '' when the id is taken; false when the passkey is taken
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
local uid, passkey = ARGV[1], ARGV[2]
if call('EXISTS', P .. 'user:' .. passkey) == 1 then return false end

-- Totals alone do not take an id, as a site may have imported them before; totals with an existing passkey do. The keys
-- of a user who is being deleted must not go to the next user.
local function is_taken(id)
  if call('ZCOUNT', P .. 'users', id, id) > 0 or call('SISMEMBER', P .. 'deleting', id) == 1 then return true end
  local own = call('HGET', P .. 'u:' .. id, 'passkey')
  return own and call('EXISTS', P .. 'user:' .. own) == 1
end

-- A store of an older version may list ids above the last one given out.
local function raise_to_listed()
  local highest = call('ZRANGE', P .. 'users', '(100000000000000', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1,
    'WITHSCORES')[2]
  if highest then raise_last_id(string.format('%.0f', tonumber(highest))) end
end

if uid == '' then
  raise_to_listed()
  repeat
    uid = string.format('%.0f', call('INCR', P .. 'user_id'))
  until not is_taken(uid) and call('EXISTS', P .. 'u:' .. uid) == 0
elseif is_taken(uid) then
  return ''
else
  raise_last_id(uid)
end
call('ZADD', P .. 'users', uid, passkey)
call('HSET', P .. 'u:' .. uid, 'passkey', passkey)
call('HSET', P .. 'user:' .. passkey, 'user_id', uid, 'enabled', '1', 'can_leech', ARGV[3])
return uid
