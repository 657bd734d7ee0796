-- changes.lua: the change feed: who joined and left swarms, completions and hit-and-runs. Needs `max_changes`, about
-- how many changes are kept (0: none are recorded).
--
-- The script that makes a change records it, so both are one atomic step. A swarm is written by then, so a feed of a
-- wrong type must not fail an announce: then nothing is recorded. All entries have the same fields: the server stores
-- their names once for many entries. A value that the change does not have is empty.

local feed = {}

function feed.number(value)
  return type(value) == 'number' and string.format('%.0f', value - value % 1) or value or ''
end

-- What a user got credited on a torrent: what the user moved there, and `extra`, by which the credit differs.
function feed.credit(moved, extra)
  return extra and string.format('%.0f', math.max(0, (tonumber(moved) or 0) + (tonumber(extra) or 0))) or ''
end

-- `t` is the torrent with its counts after the change. `totals`: uploaded, downloaded and seed_time of the user on the
-- torrent, and extra_up and extra_dn, nil for an anonymous peer. `peer`: pidx, announced (hex, if pidx is a derived
-- id), endpoints, agent, and its counters uploaded and downloaded, nil where it has none.
function feed.record(change, t, uid, left, totals, peer)
  local number = feed.number
  redis.pcall('XADD', P .. 'changes', 'MAXLEN', '~', max_changes, '*', 'change', change, 'info_hash', t.ih,
    'torrent_id', t.tid, 'user_id', uid, 'peer_id', peer.pidx or '', 'uploaded', number(totals.uploaded),
    'downloaded', number(totals.downloaded), 'seed_time', number(totals.seed_time), 'left', left or '',
    'seeders', t.seeders, 'leechers', t.leechers, 'credited_uploaded', feed.credit(totals.uploaded, totals.extra_up),
    'credited_downloaded', feed.credit(totals.downloaded, totals.extra_dn), 'endpoints', peer.endpoints or '',
    'announced_id', peer.announced or '', 'user_agent', peer.agent or '', 'peer_uploaded', number(peer.uploaded),
    'peer_downloaded', number(peer.downloaded))
end

-- The torrent became a hit-and-run of the user, is about to, or is none any more. An account has only the torrent's id.
function feed.record_hit_and_run(change, a)
  if max_changes == 0 then return end
  local ih = redis.pcall('GET', P .. 'torrent_id:' .. a.tid)
  local t = { tid = a.tid, ih = type(ih) == 'string' and ih or '', seeders = '', leechers = '' }
  feed.record(change, t, a.uid, a.left, a, {})
end

-- The totals of a user on a torrent, for a change that loads no account.
function feed.totals(uid, tid)
  local v = redis.pcall('HMGET', P .. 'u:' .. uid .. ':t:' .. tid, 'uploaded', 'downloaded', 'seed_time', 'extra_up',
    'extra_dn')
  return { uploaded = v[1] or '0', downloaded = v[2] or '0', seed_time = v[3] or '0', extra_up = v[4] or 0,
    extra_dn = v[5] or 0 }
end

-- A change of a peer by no announce of its own. Its hash still exists.
function feed.record_peer(change, t, pidx, uid, left)
  if max_changes == 0 then return end
  local v = redis.pcall('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'uploaded', 'downloaded', 'endpoints', 'peer_id',
    'agent')
  local peer = { pidx = pidx, uploaded = v[1] or '0', downloaded = v[2] or '0', endpoints = v[3] or '',
    announced = v[4] and (string.gsub(v[4], '.', function(one) return string.format('%02x', string.byte(one)) end)),
    agent = v[5] or '' }
  local totals = uid ~= '' and feed.totals(uid, t.tid)
    or { uploaded = peer.uploaded, downloaded = peer.downloaded, seed_time = '0' }
  feed.record(change, t, uid, left, totals, peer)
end
