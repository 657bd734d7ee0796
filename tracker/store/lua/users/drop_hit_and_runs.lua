#!lua flags=allow-oom
-- drop_hit_and_runs.lua: removes deleted torrents from a user's hit-and-runs, as they cannot be seeded any more, and
-- those that are none by the rules in force.
-- KEYS[1]   the prefix
-- ARGV[1]   user id   ARGV[2] cursor in the user's set ('0' at the start)   ARGV[3] when a download is a hit-and-run
--   (hit_and_run_rules.lua)   ARGV[4] torrents, approximately
-- Answer    { cursor, '0' at the end; how many were removed }
local P, call = KEYS[1], redis.call
--@ include lib/hit_and_run_rules.lua
--@ include lib/hit_and_runs.lua
--@ include lib/hit_and_run_check.lua
--@ include lib/account_totals.lua
local uid, dropped = ARGV[1], 0
local owed = P .. 'u:' .. uid .. ':hnr'

-- An unregistered torrent keeps its id while its swarm has peers.
local function is_deleted(tid)
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  return not ih or call('EXISTS', P .. 'info_hash:' .. ih) == 0 and call('SCARD', P .. 'tpeers:' .. ih) == 0
end

-- A site may have listed a torrent on which the user has no account.
local function is_none(tid)
  local a = load_totals(uid, tid)
  return a and not is_hit_and_run(a)
end

local page = call('SSCAN', owed, ARGV[2], 'COUNT', ARGV[4])
for _, tid in ipairs(page[2]) do
  if is_deleted(tid) or is_none(tid) then dropped = dropped + call('SREM', owed, tid) end
end
if dropped > 0 then rank_hit_and_runs(uid) end
return { page[1], dropped }
