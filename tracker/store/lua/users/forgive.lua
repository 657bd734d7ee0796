#!lua
-- forgive.lua: removes torrents from a user's hit-and-runs, and from the pending ones. Past downloads of them will not
-- count again.
-- KEYS[1]   the prefix   ARGV[1] user id   ARGV[2..] torrent ids, at most some hundreds
-- Answer    how many were hit-and-runs or pending
local P, call = KEYS[1], redis.call
--@ include lib/hit_and_runs.lua
local uid, forgiven = ARGV[1], 0
local owed = P .. 'u:' .. uid .. ':hnr'
for i = 2, #ARGV do
  local account = P .. 'u:' .. uid .. ':t:' .. ARGV[i]
  local downloaded = call('HGET', account, 'downloaded')
  local pending = redis.pcall('ZREM', P .. 'i:hnr_pending', uid .. ':' .. ARGV[i]) == 1
  if call('SREM', owed, ARGV[i]) == 1 or pending then
    forgiven = forgiven + 1
    if downloaded then call('HSET', account, 'forgiven', downloaded) end
  end
end
rank_hit_and_runs(uid)
return forgiven
