#!lua
-- note_users.lua: under the main prefix of several shards, notes users whose rows a site may have written, so that the
-- shards get them. Users that are not listed are listed first.
-- ARGV      for each its passkey, and the digest of its row that was compared ('': none). A passkey that does not fit
--   into an announce URL is left out
-- Answer    nothing
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua

local function list(passkey)
  local uid = call('HGET', P .. 'user:' .. passkey, 'user_id')
  if uid and is_user_id(uid) and not is_listed(uid, passkey) then adopt(uid, passkey) end
end

for i = 1, #ARGV, 2 do
  local passkey = ARGV[i]
  if #passkey >= 16 and #passkey <= 64 and not string.find(passkey, '[^%w_-]') then
    pcall(list, passkey)
    note_copy(passkey)
    if ARGV[i + 1] ~= '' then call('HSET', P .. 'copies:rows', passkey, ARGV[i + 1]) end
  end
end
