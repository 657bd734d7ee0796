#!lua flags=allow-oom
-- drop_hit_and_runs.lua: removes deleted torrents from a user's hit-and-runs, as they cannot be seeded any more, and
-- those that are none by the rules in force.
-- ARGV[1]   user id   ARGV[2] cursor in the user's set ('0' at the start)   ARGV[3] when a download is a hit-and-run
--   (hit_and_run_rules.lua)   ARGV[4] torrents, approximately   ARGV[5] changes that the change feed keeps, about (0:
--   none are recorded)
-- Answer    { cursor, '0' at the end; how many were removed }
local P, call, max_changes = KEYS[1], redis.call, tonumber(ARGV[5])
--@ include lib/hit_and_run_rules.lua
--@ include lib/account_totals.lua
local uid, dropped = ARGV[1], 0
local owed = P .. 'u:' .. uid .. ':hnr'

-- An unregistered torrent keeps its id while its swarm has peers.
local function is_deleted(tid)
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  return not ih or call('EXISTS', P .. 'info_hash:' .. ih) == 0 and call('SCARD', P .. 'tpeers:' .. ih) == 0
end

local page = call('SSCAN', owed, ARGV[2], 'COUNT', ARGV[4])
for _, tid in ipairs(page[2]) do
  local a = load_totals(uid, tid) -- a site may have listed a torrent on which the user has no account
  if (is_deleted(tid) or a and not is_hit_and_run(a)) and call('SREM', owed, tid) == 1 then
    dropped = dropped + 1
    feed.record_hit_and_run('hit_and_run_cleared',
      a or { uid = uid, tid = tid, uploaded = 0, downloaded = 0, seed_time = 0 })
  end
end
if dropped > 0 then rank_hit_and_runs(uid) end
return { page[1], dropped }
