#!lua
-- save_users.lua: adds users, and changes those who exist. A repeated call changes nothing, unless it adds to totals.
-- ARGV[1]   '1': totals replace those of known users too; 'new': a known user is not changed (`user`, `passkey`), and
--   nothing is published
-- ARGV[2]   the key of a request that may be repeated, or '': each row adds to totals once
-- ARGV[3]   the number of the first row in that request
-- ARGV[4..] the users, each as user_fields.lua reads it. A user without an id is the holder of the passkey, or new
-- Answer    for each user { outcome, user id, passkey if it was made for the user, else '' }, and for one with `adds`
--   also the totals uploaded and downloaded. Outcome: 1 new, 0 known.
--   Or the reason why nothing was changed: 'passkey' it belongs to another user, 'user' the user has another passkey,
--   'deleting' a user with this id is being deleted, 'id' the holder of the passkey has an invalid id, 'error' a key is
--   of a wrong type
local P, call = KEYS[1], redis.call
--@ include lib/user_fields.lua
--@ include lib/edits.lua

local is_any_deleted = call('EXISTS', P .. 'deleting') == 1
local highest = '0' -- of the ids that were added: they are noted once, and before an id is given out

-- A site may list ids above the last one given out.
local function next_user_id()
  local listed = call('ZRANGE', P .. 'users', '(100000000000000', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  if listed[2] then raise_last_id(string.format('%.0f', tonumber(listed[2]))) end
  raise_last_id(highest)
  local uid
  repeat
    uid = string.format('%.0f', call('INCR', P .. 'user_id'))
  until not is_user_taken(uid) and call('EXISTS', P .. 'u:' .. uid) == 0
  return uid
end

local function save(user, row)
  local uid, passkey = user.id, user.passkey
  if ARGV[1] == 'new' then
    if call('EXISTS', P .. 'user:' .. passkey) == 1 then return { 'passkey' } end
    if uid ~= '' and is_user_taken(uid) then return { 'user' } end
  end
  if uid == '' then uid = call('HGET', P .. 'user:' .. passkey, 'user_id') or next_user_id() end
  if not is_user_id(uid) then return { 'id' } end
  if is_any_deleted and call('SISMEMBER', P .. 'deleting', uid) == 1 then return { 'deleting' } end
  local before, listed = stored_user(uid), call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')[1]
  local own = listed or before[1] and call('EXISTS', P .. 'user:' .. before[1]) == 1 and before[1]
  if passkey == '' then passkey = own or user.random end
  if own and own ~= passkey then return { 'user' } end
  local held = call('HMGET', P .. 'user:' .. passkey, 'user_id', 'enabled', 'can_leech')
  local other = not listed and call('ZSCORE', P .. 'users', passkey)
  if held[1] and held[1] ~= uid or other and tonumber(other) ~= tonumber(uid) then return { 'passkey' } end
  if tonumber(uid) > tonumber(highest) and #uid < 15 then highest = uid end
  if not listed then call('ZADD', P .. 'users', uid, passkey) end
  user.profile.passkey, user.rights.user_id = passkey, uid
  if not own then
    user.rights.enabled = user.rights.enabled or held[2] or '1'
    user.rights.can_leech = user.rights.can_leech or held[3] or '1'
  end
  local adds = next(user.adds)
  if adds and not is_first(ARGV[2], string.format('%.0f', row)) then user.adds = {} end
  write_rights(passkey, user.rights, uid)
  write_account(uid, user, before, not own or ARGV[1] == '1', not own and not held[1])
  local made = passkey == user.random and passkey or ''
  if not adds then return { own and 0 or 1, uid, made } end
  local v = call('HMGET', P .. 'u:' .. uid, 'uploaded', 'downloaded')
  return { own and 0 or 1, uid, made, v[1] or '0', v[2] or '0' }
end

local answers = {}
for i = 4, #ARGV do
  local ok, answer = pcall(save, cjson.decode(ARGV[i]), ARGV[3] + i - 4)
  answers[i - 3] = ok and answer or { 'error' }
  if ok and answer[2] then
    record_edit(answer[2], '')
    if ARGV[1] ~= 'new' then redis.pcall('PUBLISH', P .. 'users', answer[2]) end
  end
end
pcall(raise_last_id, highest) -- of a wrong type: the ids are given out by their keys alone
write_index_entries()
return answers
