#!lua
-- import_user.lua: imports a user from a file or another site; a second import changes nothing.
-- KEYS[1]   the prefix
-- ARGV[1]   user id   ARGV[2] passkey, '' to keep the user's own   ARGV[3] passkey for a user who has none
-- ARGV[4]   enabled, ARGV[5] can_leech: '0', '1', or '' to leave it; a new user gets '1'
-- ARGV[6..9] uploaded, downloaded, snatches, announces: totals of a new user, '' for 0
-- ARGV[10]  '1': totals replace those of a known user too
-- Answer    1 when the user was new, 0 when known; 'passkey' when the passkey belongs to another user, 'user' when the
--   user has another passkey; 'deleting' when a user with this id is being deleted
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
local uid, passkey = ARGV[1], ARGV[2]
local users, totals = P .. 'users', P .. 'u:' .. uid

if call('SISMEMBER', P .. 'deleting', uid) == 1 then return 'deleting' end
local own = call('ZRANGE', users, uid, uid, 'BYSCORE')[1]
if not own then
  own = call('HGET', totals, 'passkey')
  if own and call('EXISTS', P .. 'user:' .. own) == 0 then own = false end
end
if passkey == '' then passkey = own or ARGV[3] end
if own and own ~= passkey then return 'user' end

local row = P .. 'user:' .. passkey
local holder = call('HGET', row, 'user_id')
if holder and holder ~= uid then return 'passkey' end
local listed = call('ZSCORE', users, passkey)
if listed and tonumber(listed) ~= tonumber(uid) then return 'passkey' end
call('HLEN', totals)
raise_last_id(uid)

call('ZADD', users, uid, passkey)
call('HSET', totals, 'passkey', passkey)
for i, name in ipairs({ 'uploaded', 'downloaded', 'snatches', 'announces' }) do
  if ARGV[5 + i] ~= '' and (not own or ARGV[10] == '1') then call('HSET', totals, name, ARGV[5 + i]) end
end
call('HSET', row, 'user_id', uid)
for i, name in ipairs({ 'enabled', 'can_leech' }) do
  if ARGV[3 + i] ~= '' then
    call('HSET', row, name, ARGV[3 + i])
  elseif not own then
    call('HSET', row, name, '1')
  end
end
return own and 0 or 1
