#!lua flags=no-writes
-- read_users.lua: reads users.
-- ARGV[1]   '1': by id, else by passkey   ARGV[2] fields of `user:<passkey>`, user_id first, separated by spaces
-- ARGV[3]   fields of `u:<uid>`   ARGV[4..] the ids or passkeys
-- Answer    for each: nil if it is unknown or a key is of a wrong type, else the passkey and the values of the fields
local P, call = KEYS[1], redis.call

local function words(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do found[#found + 1] = word end
  return found
end

local rights, fields = words(ARGV[2]), words(ARGV[3])

local function read(passkey)
  if ARGV[1] == '1' then passkey = call('ZRANGE', P .. 'users', passkey, passkey, 'BYSCORE')[1] end
  local row = passkey and call('HMGET', P .. 'user:' .. passkey, unpack(rights))
  if not row or not row[1] or row[1] == '' then return false end
  local values = call('HMGET', P .. 'u:' .. row[1], unpack(fields))
  local found = { passkey, unpack(row) }
  for _, value in ipairs(values) do found[#found + 1] = value end
  return found
end

local answers = {}
for i = 4, #ARGV do
  local readable, row = pcall(read, ARGV[i])
  answers[i - 3] = readable and row
end
return answers
