#!lua
-- decide_hit_and_runs.lua: ends grace periods: torrents whose users have not come back become hit-and-runs. Grace
-- periods end on the steady clock (outage.lua), and after an interruption users get time to come back first.
-- ARGV[1]   now (epoch s)   ARGV[2] max pending ones to look at   ARGV[3] when a download is a hit-and-run
--   (hit_and_run_rules.lua)
-- ARGV[4]   grace after an outage (s)   ARGV[5] changes that the change feed keeps, about (0: none are recorded)
-- Answer    { pending ones looked at, how many became hit-and-runs }
local P, call, now, max_changes = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[5])
--@ include lib/hit_and_run_rules.lua
--@ include lib/outage.lua
--@ include lib/account_totals.lua
local _, outage_until, steady = last_outage(unpack(call('MGET', P .. 'gap', P .. 'heartbeat')))
if now < outage_until + tonumber(ARGV[4]) then return { 0, 0 } end

local pending, added = P .. 'i:hnr_pending', 0
local due = call('ZRANGE', pending, '-inf', steady, 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, member in ipairs(due) do
  local uid, tid = string.match(member, '^(%d+):(%d+)$')
  local a = uid and load_totals(uid, tid)
  if a and a.peers == 0 and is_hit_and_run(a) then
    if redis.pcall('SADD', P .. 'u:' .. uid .. ':hnr', tid) == 1 then
      rank_hit_and_runs(uid)
      feed.record_hit_and_run('hit_and_run', a)
    end
    added = added + 1
  elseif a and a.peers == 0 then -- the rules changed meanwhile, or the user is exempt
    feed.record_hit_and_run('hit_and_run_cleared', a)
  end
  call('ZREM', pending, member)
end
return { #due, added }
