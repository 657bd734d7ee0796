-- accounts.lua: what a user has on a torrent, summed over all of the user's peer ids there. Needs `steady`, what the
-- steady clock shows (outage.lua).
--@ include lib/numbers.lua
--@ include lib/changes.lua
--@ include lib/hit_and_runs.lua

local function account_key(uid, tid)
  return P .. 'u:' .. uid .. ':t:' .. tid
end

local load_account, save_account, end_activity, end_activity_of
do
-- Tables that are refilled, as a new one costs more: the account of the announce, that of another user's peer which
-- leaves by it, and fields with their values.
local loaded, other, written = {}, {}, {}
-- Those that few announces need come last.
local ACCOUNT = {
  'peers', 'left', 'downloaded', 'uploaded', 'seed_time', 'total_time', 'until', 'from', 'credited', 'unreported',
  'leeched', 'completed_at', 'extra_up', 'extra_dn',
}

-- Field `i` as a whole number, 0 for none. `v` gets it as well, or -1 for text that save_account() has to overwrite.
local function number_at(v, i)
  local text = v[i]
  if not text then return 0 end
  local number = tonumber(text)
  if number and number >= 0 and number <= MAX_EXACT and number % 1 == 0 then
    v[i] = number
    return number
  end
  v[i] = -1
  return whole_field(text)
end

-- The account with the first `number` of these fields (nil: all but those that only the change feed needs; with a feed
-- all of them), and with `peer_ids`, as `listed`, if the peer joins. A field that is not read counts as one that is not
-- there, and stays as it is unless the account changes there. `a` is refilled; without it, the account that was loaded
-- last is.
function load_account(uid, tid, number, joins, a)
  number = max_changes > 0 and 14 or number or 12
  local key = account_key(uid, tid)
  local v, listed, till, from
  if not joins then
    v = call('HMGET', key, unpack(ACCOUNT, 1, number))
  elseif number == 2 then -- nearly all joins
    v = call('HMGET', key, 'peers', 'left', 'peer_ids')
    listed, v[3] = v[3], nil
  else
    v = call('HMGET', key, 'peer_ids', unpack(ACCOUNT, 1, number))
    listed = table.remove(v, 1)
  end
  local peers = number_at(v, 1)
  if v[7] and v[8] then till, from = number_at(v, 7), number_at(v, 8) end
  a = a or loaded
  a.uid, a.tid, a.key, a.stored, a.peers, a.left, a.listed = uid, tid, key, v, peers, v[2], listed
  a.downloaded, a.uploaded, a.seed_time, a.total_time =
    number_at(v, 3), number_at(v, 4), number_at(v, 5), number_at(v, 6)
  a.till, a.from, a.credited, a.leeched, a.completed_at = till, from, v[9], v[11], v[12]
  a.extra_up, a.extra_dn = v[13] or 0, v[14] or 0
  a.unreported, a.peer_ids, a.has_new_extra, a.first_seen, a.last_seen = false, false, false, false, false
  a.user, a.passkey = false, false
  return a
end

-- Writes what has changed, and what is no whole number. The server writes whole numbers up to MAX_EXACT exactly, so
-- they need no text.
function save_account(a)
  if sharded then note_changed(a.uid) end
  local v, n, fields = a.stored, 0, written
  if a.peers ~= (v[1] or 0) then fields[1], fields[2], n = 'peers', a.peers, 2 end
  if a.left ~= v[2] then fields[n + 1], fields[n + 2], n = 'left', a.left, n + 2 end
  if a.downloaded ~= (v[3] or 0) then fields[n + 1], fields[n + 2], n = 'downloaded', a.downloaded, n + 2 end
  if a.uploaded ~= (v[4] or 0) then fields[n + 1], fields[n + 2], n = 'uploaded', a.uploaded, n + 2 end
  if a.seed_time ~= (v[5] or 0) then fields[n + 1], fields[n + 2], n = 'seed_time', a.seed_time, n + 2 end
  if a.total_time ~= (v[6] or 0) then fields[n + 1], fields[n + 2], n = 'total_time', a.total_time, n + 2 end
  if a.till and (a.till ~= v[7] or a.from ~= v[8]) then
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4], n = 'until', a.till, 'from', a.from, n + 4
  end
  if a.credited ~= v[9] then fields[n + 1], fields[n + 2], n = 'credited', a.credited, n + 2 end
  if a.unreported then fields[n + 1], fields[n + 2], n = 'unreported', a.unreported, n + 2 end
  if a.leeched and not v[11] then fields[n + 1], fields[n + 2], n = 'leeched', '1', n + 2 end
  if a.peer_ids then fields[n + 1], fields[n + 2], n = 'peer_ids', a.peer_ids, n + 2 end
  if a.has_new_extra then
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = 'extra_up', a.extra_up, 'extra_dn', a.extra_dn
    n = n + 4
  end
  if a.first_seen then fields[n + 1], fields[n + 2], n = 'first_seen', a.first_seen, n + 2 end
  if a.last_seen then fields[n + 1], fields[n + 2], n = 'last_seen', a.last_seen, n + 2 end
  if n > 0 then call('HSET', a.key, unpack(fields, 1, n)) end
end

-- One of the user's peers left the swarm. When it was the last one, the torrent is no longer active for the user, and
-- it may become a hit-and-run, at once or after the grace period; `decide` is false when the time since the last
-- announce contains an outage of the tracker. The swarm is written already, so a set of a wrong type must not fail
-- this.
function end_activity(a, decide)
  a.peers = math.max(0, a.peers - 1)
  if a.peers > 0 then return end
  redis.pcall('SREM', P .. 'u:' .. a.uid .. ':active', a.tid)
  if not decide or not is_hit_and_run(a) then return end
  if hnr_grace == 0 then
    if redis.pcall('SADD', P .. 'u:' .. a.uid .. ':hnr', a.tid) == 1 then
      rank_hit_and_runs(a.uid)
      feed.record_hit_and_run('hit_and_run', a)
    end
  elseif redis.pcall('SISMEMBER', P .. 'u:' .. a.uid .. ':hnr', a.tid) == 0 then
    redis.pcall('ZADD', P .. 'i:hnr_pending', steady + hnr_grace, a.uid .. ':' .. a.tid)
    feed.record_hit_and_run('hit_and_run_pending', a)
  end
end

-- One of the user's peers left the swarm by no announce of the user's. A user who was deleted meanwhile has no account,
-- and must not get one again; an account of a wrong type stays as it is. `last`: when the peer last announced.
function end_activity_of(uid, tid, decide, last)
  if call('EXISTS', account_key(uid, tid)) == 0 then return end
  local readable, a = pcall(load_account, uid, tid, nil, false, other)
  if not readable then return end
  end_activity(a, decide)
  a.last_seen = last
  save_account(a)
end
end
