#!lua flags=no-writes
-- list_users.lua: walks through an index of users, in its order, and selects those who match.
-- ARGV[1]   the order: id, hit_and_runs, name, uploaded, downloaded or ratio   ARGV[2] '1': descending
-- ARGV[3]   position to begin at (0: the first)   ARGV[4] users to look at   ARGV[5] max results
-- ARGV[6]   enabled, ARGV[7] can_leech: '0', '1', or '' for both   ARGV[8] part of the name, folded ('' any name)
-- ARGV[9]   id of a user to leave out, or ''
-- Answer    { position to go on at (-1: that was the last), passkeys }
local P, order, max_found = KEYS[1], ARGV[1], tonumber(ARGV[5])
local call, enabled, can_leech, part, left_out = redis.call, ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local index = order == 'id' and P .. 'users' or order == 'hit_and_runs' and P .. 'i:hnr' or P .. 'i:user_' .. order

local function fits(wanted, right)
  return wanted == '' or (right ~= '0') == (wanted == '1')
end

local function matching(entry)
  local passkey, uid, name = entry, entry
  if order == 'name' then
    name, uid = string.match(entry, '^(.*)\t(%d+)$')
    if not uid or uid == left_out or not string.find(name, part, 1, true) then return end
  end
  if order ~= 'id' then passkey = call('HGET', P .. 'u:' .. uid, 'passkey') end
  if not passkey or enabled == '' and can_leech == '' then return passkey end
  local v = call('HMGET', P .. 'user:' .. passkey, 'enabled', 'can_leech')
  return fits(enabled, v[1]) and fits(can_leech, v[2]) and passkey
end

local position, found = tonumber(ARGV[3]), {}
local range = { index, position, position + tonumber(ARGV[4]) - 1 }
if ARGV[2] == '1' then range[4] = 'REV' end
local size, entries = call('ZCARD', index), call('ZRANGE', unpack(range))
for _, entry in ipairs(entries) do
  if #found == max_found then break end
  position = position + 1
  if order ~= 'name' or string.find(entry, part, 1, true) then
    local readable, passkey = pcall(matching, entry) -- a key of a wrong type: leave this user out
    if readable and passkey then found[#found + 1] = passkey end
  end
end
return { position < size and position or -1, found }
