#!lua
-- rank_users.lua: ranks some users by their totals, and lists those without a right.
-- ARGV[1]   cursor in `users` ('0' at the start)   ARGV[2] users, approximately
-- Answer    { the next cursor, '0' at the end; how many were visited }
local P, call = KEYS[1], redis.call
--@ include lib/index_entries.lua
local page = call('ZSCAN', P .. 'users', ARGV[1], 'COUNT', ARGV[2])
for i = 1, #page[2], 2 do
  local uid = string.format('%.0f', tonumber(page[2][i + 1]))
  local rights = redis.pcall('HMGET', P .. 'user:' .. page[2][i], 'enabled', 'can_leech')
  if not rights.err then
    note_entry('user_disabled', uid, rights[1] == '0' and uid)
    note_entry('user_blocked', uid, rights[2] == '0' and uid)
  end
  local v = redis.pcall('HMGET', P .. 'u:' .. uid, 'uploaded', 'downloaded')
  if not v.err then note_rank(uid, v[1], v[2]) end -- totals of a wrong type: leave this user out
end
write_index_entries()
return { page[1], #page[2] / 2 }
