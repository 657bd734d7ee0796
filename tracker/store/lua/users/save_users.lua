#!lua
-- save_users.lua: adds users, and changes those who exist. A repeated call changes nothing.
-- KEYS[1]   the prefix
-- ARGV[1]   '1': totals replace those of known users too
-- ARGV[2..] the users, as user_fields.lua reads them. A user without an id is the holder of the passkey, or new
-- Answer    for each user { outcome, user id, passkey if it was made for the user, else '' }. Outcome: 1 new, 0 known.
--   Or the reason why nothing was changed: 'passkey' it belongs to another user, 'user' the user has another passkey,
--   'deleting' a user with this id is being deleted, 'id' the holder of the passkey has an invalid id, 'error' a key is
--   of a wrong type
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/user_id_form.lua
--@ include lib/new_user_id.lua
--@ include lib/names.lua
--@ include lib/user_ranks.lua
--@ include lib/user_fields.lua
--@ include lib/edits.lua

local function own_passkey(uid)
  local listed = call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')[1]
  if listed then return listed end
  local own = call('HGET', P .. 'u:' .. uid, 'passkey')
  return own and call('EXISTS', P .. 'user:' .. own) == 1 and own
end

local function save(user)
  local uid, passkey = user.id, user.passkey
  if uid == '' then uid = call('HGET', P .. 'user:' .. passkey, 'user_id') or new_user_id() end
  if not is_user_id(uid) then return { 'id' } end
  if call('SISMEMBER', P .. 'deleting', uid) == 1 then return { 'deleting' } end
  local own = own_passkey(uid)
  if passkey == '' then passkey = own or user.random end
  if own and own ~= passkey then return { 'user' } end
  local row = P .. 'user:' .. passkey
  local holder, listed = call('HGET', row, 'user_id'), call('ZSCORE', P .. 'users', passkey)
  if holder and holder ~= uid or listed and tonumber(listed) ~= tonumber(uid) then return { 'passkey' } end
  call('HLEN', P .. 'u:' .. uid)
  raise_last_id(uid)
  call('ZADD', P .. 'users', uid, passkey)
  call('HSET', P .. 'u:' .. uid, 'passkey', passkey)
  call('HSET', row, 'user_id', uid)
  if not own then
    call('HSETNX', row, 'enabled', '1')
    call('HSETNX', row, 'can_leech', '1')
  end
  write_user(uid, passkey, user, not own or ARGV[1] == '1')
  return { own and 0 or 1, uid, passkey == user.random and passkey or '' }
end

local answers, saved, at = {}, {}, 2
while ARGV[at] do
  local user, after = read_user(at)
  local ok, answer = pcall(save, user)
  answers[#answers + 1] = ok and answer or { 'error' }
  if ok and answer[2] then
    saved[#saved + 1] = answer[2]
    record_edit(answer[2], '')
    redis.pcall('PUBLISH', P .. 'users', answer[2])
  end
  at = after
end
rank_users(saved)
return answers
