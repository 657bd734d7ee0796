#!lua
-- forgive.lua: takes torrents out of a user's hit and runs. What the user had downloaded there until now makes none again.
-- KEYS[1]   the prefix   ARGV[1] user id   ARGV[2..] torrent ids, at most some hundreds
-- Answer    how many were hit and runs
local P, call = KEYS[1], redis.call
--@ include users.lua
local uid, forgiven = ARGV[1], 0
local debts = P .. 'u:' .. uid .. ':hnr'
for i = 2, #ARGV do
  local account = account_key(uid, ARGV[i])
  local downloaded = call('HGET', account, 'downloaded')
  if call('SREM', debts, ARGV[i]) == 1 then
    forgiven = forgiven + 1
    if downloaded then call('HSET', account, 'forgiven', downloaded) end
  end
end
rank_debt(uid)
return forgiven
