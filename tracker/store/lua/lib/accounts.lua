-- accounts.lua: what a user has on a torrent, summed over all of the user's peer ids there. After numbers.lua,
-- changes.lua and hit_and_runs.lua; needs `steady`, what the steady clock shows (outage.lua).

local function account_key(uid, tid)
  return P .. 'u:' .. uid .. ':t:' .. tid
end

local ACCOUNT = {
  'peers', 'total_time', 'seed_time', 'uploaded', 'downloaded', 'until', 'left', 'from', 'credited', 'unreported',
  'leeched', 'completed_at',
}

-- `fields` are ACCOUNT, which is the default, and one more, whose value is `listed` then.
local function load_account(uid, tid, fields)
  local v = call('HMGET', account_key(uid, tid), unpack(fields or ACCOUNT))
  return {
    uid = uid, tid = tid, stored = v, peers = whole_field(v[1]), total_time = whole_field(v[2]),
    seed_time = whole_field(v[3]), uploaded = whole_field(v[4]), downloaded = whole_field(v[5]),
    till = v[6] and v[8] and whole_field(v[6]), left = v[7], from = v[8] and whole_field(v[8]), credited = v[9],
    unreported = math.max(-MAX_EXACT, math.min(MAX_EXACT, whole(v[10]))), leeched = v[11], completed_at = v[12],
    listed = v[13],
  }
end

-- The server writes whole numbers up to MAX_EXACT exactly, so they need no text. A 0 that is not there is left out.
local function save_account(a)
  if is_shard() then note_changed(a.uid) end
  local v, fields, n = a.stored, { 'peers', a.peers }, 2
  if v[2] or a.total_time ~= 0 then fields[n + 1], fields[n + 2], n = 'total_time', a.total_time, n + 2 end
  if v[3] or a.seed_time ~= 0 then fields[n + 1], fields[n + 2], n = 'seed_time', a.seed_time, n + 2 end
  if v[4] or a.uploaded ~= 0 then fields[n + 1], fields[n + 2], n = 'uploaded', a.uploaded, n + 2 end
  if v[5] or a.downloaded ~= 0 then fields[n + 1], fields[n + 2], n = 'downloaded', a.downloaded, n + 2 end
  if a.till then
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4], n = 'until', a.till, 'from', a.from, n + 4
  end
  if a.left ~= v[7] then fields[n + 1], fields[n + 2], n = 'left', a.left, n + 2 end
  if a.credited ~= v[9] then fields[n + 1], fields[n + 2], n = 'credited', a.credited, n + 2 end
  if a.unreported ~= 0 then fields[n + 1], fields[n + 2], n = 'unreported', a.unreported, n + 2 end
  if a.leeched and not v[11] then fields[n + 1], fields[n + 2], n = 'leeched', '1', n + 2 end
  if a.peer_ids then fields[n + 1], fields[n + 2], n = 'peer_ids', a.peer_ids, n + 2 end
  call('HSET', account_key(a.uid, a.tid), unpack(fields, 1, n))
end

-- One of the user's peers left the swarm. When it was the last one, the torrent is no longer active for the user, and
-- it may become a hit-and-run, at once or after the grace period; `decide` is false when the time since the last
-- announce contains an outage of the tracker. The swarm is written already, so a set of a wrong type must not fail
-- this.
local function end_activity(a, decide)
  a.peers = math.max(0, a.peers - 1)
  if a.peers > 0 then return end
  redis.pcall('SREM', P .. 'u:' .. a.uid .. ':active', a.tid)
  if not decide or not is_hit_and_run(a) then return end
  if hnr_grace == 0 then
    if redis.pcall('SADD', P .. 'u:' .. a.uid .. ':hnr', a.tid) == 1 then
      rank_hit_and_runs(a.uid)
      record_hit_and_run('hit_and_run', a)
    end
  elseif redis.pcall('SISMEMBER', P .. 'u:' .. a.uid .. ':hnr', a.tid) == 0 then
    redis.pcall('ZADD', P .. 'i:hnr_pending', steady + hnr_grace, a.uid .. ':' .. a.tid)
    record_hit_and_run('hit_and_run_pending', a)
  end
end

-- One of the user's peers left the swarm by no announce of the user's. A user who was deleted meanwhile has no account,
-- and must not get one again; an account of a wrong type stays as it is.
local function end_activity_of(uid, tid, decide)
  if call('EXISTS', account_key(uid, tid)) == 0 then return end
  local readable, a = pcall(load_account, uid, tid)
  if not readable then return end
  end_activity(a, decide)
  save_account(a)
end
