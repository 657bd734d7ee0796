#!lua
-- forgive.lua: removes torrents from a user's hit-and-runs and pending ones; past downloads do not count again.
-- ARGV[1]   user id   ARGV[2] changes that the change feed keeps, about (0: none are recorded)
-- ARGV[3..] torrent ids, at most some hundreds
-- Answer    how many were hit-and-runs or pending
local P, call, max_changes = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/account_totals.lua
local uid, forgiven = ARGV[1], 0
local owed = P .. 'u:' .. uid .. ':hnr'
for i = 3, #ARGV do
  local account = P .. 'u:' .. uid .. ':t:' .. ARGV[i]
  local downloaded = call('HGET', account, 'downloaded')
  local pending = redis.pcall('ZREM', P .. 'i:hnr_pending', uid .. ':' .. ARGV[i]) == 1
  if call('SREM', owed, ARGV[i]) == 1 or pending then
    forgiven = forgiven + 1
    if downloaded then call('HSET', account, 'forgiven', downloaded) end
    -- A site may have listed a torrent on which the user has no account.
    feed.record_hit_and_run('hit_and_run_forgiven',
      load_totals(uid, ARGV[i]) or { uid = uid, tid = ARGV[i], uploaded = 0, downloaded = 0, seed_time = 0 })
  end
end
rank_hit_and_runs(uid)
return forgiven
