-- changes.lua: the change feed: who joined and left swarms, completions and hit-and-runs. After `P` and `call`; needs
-- `max_changes`, about how many changes are kept (0: none are recorded).
--
-- The script that makes a change records it, so both are one atomic step. A swarm is written by then, so a feed of a
-- wrong type must not fail an announce: then nothing is recorded. All entries have the same fields: the server stores
-- their names once for many entries. A value that the change does not have is empty.

-- `t` is the torrent with its counts after the change. `uploaded`, `downloaded` and `seed_time` are decimals: sums of
-- the user on the torrent, or what an anonymous peer reported.
local function record_change(change, t, pidx, uid, left, uploaded, downloaded, seed_time)
  redis.pcall('XADD', P .. 'changes', 'MAXLEN', '~', max_changes, '*', 'change', change, 'info_hash', t.ih,
    'torrent_id', t.tid, 'user_id', uid, 'peer_id', pidx, 'uploaded', uploaded, 'downloaded', downloaded,
    'seed_time', seed_time, 'left', left, 'seeders', t.seeders, 'leechers', t.leechers)
end

-- The torrent became a hit-and-run of the user, is about to, or is none any more. An account knows its torrent by id
-- only.
local function record_hit_and_run(change, a)
  if max_changes == 0 then return end
  local ih = redis.pcall('GET', P .. 'torrent_id:' .. a.tid)
  local t = { tid = a.tid, ih = type(ih) == 'string' and ih or '', seeders = '', leechers = '' }
  record_change(change, t, '', a.uid, a.left or '', string.format('%.0f', a.uploaded),
    string.format('%.0f', a.downloaded), string.format('%.0f', a.seed_time))
end
