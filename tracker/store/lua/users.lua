-- users.lua: what a user has on a torrent, added up over all of the user's peer ids there. A fragment for
-- announce.lua, reap.lua, due.lua and sweep.lua, after swarm.lua; needs `hnr_min`, `hnr_threshold`,
-- `gap_from` and `gap_until`. For forgive.lua and rank_debts.lua too: the first two functions need `P` and `call` alone.

local function account_key(uid, tid)
  return P .. 'u:' .. uid .. ':t:' .. tid
end

-- Writes how many hit and runs the user has into the index of those who have any. It follows from the set, so a key that
-- somebody else put in its place costs no announce: it can be made anew at any time.
local function rank_debt(uid)
  local owed = call('SCARD', P .. 'u:' .. uid .. ':hnr')
  if owed > 0 then
    redis.pcall('ZADD', P .. 'i:hnr', owed, uid)
  else
    redis.pcall('ZREM', P .. 'i:hnr', uid)
  end
end

local function load_account(uid, tid)
  local v = call('HMGET', account_key(uid, tid),
    'uploaded', 'downloaded', 'total_time', 'seed_time', 'peers', 'from', 'until', 'completed_at')
  return {
    uid = uid, tid = tid, uploaded = tonumber(v[1]) or 0, downloaded = tonumber(v[2]) or 0,
    total_time = tonumber(v[3]) or 0, seed_time = tonumber(v[4]) or 0, peers = tonumber(v[5]) or 0,
    from = tonumber(v[6]), till = tonumber(v[7]), completed_at = v[8],
  }
end

local function save_account(a)
  call('HSET', account_key(a.uid, a.tid), 'uploaded', decimal(a.uploaded), 'downloaded', decimal(a.downloaded),
    'total_time', decimal(a.total_time), 'seed_time', decimal(a.seed_time), 'peers', math.max(0, a.peers))
  if a.till then
    call('HSET', account_key(a.uid, a.tid), 'from', decimal(a.from), 'until', decimal(a.till))
  end
end

-- Seconds of [from, until) that the account has not counted yet. Peers of one user overlap; the stretch
-- counted last is remembered, and only what lies outside it is new.
local function cover(a, from, till)
  local new
  if not a.till or from >= a.till then
    new = till - from
    if from ~= a.till then a.from = from end
    a.till = till
  else
    new = math.max(0, till - a.till) + math.max(0, a.from - from)
    a.from, a.till = math.min(a.from, from), math.max(a.till, till)
  end
  return math.max(0, new)
end

local function add_time(a, from, till, seeding)
  local new = cover(a, from, till)
  local before = a.total_time
  a.total_time = before + new
  if seeding then a.seed_time = a.seed_time + new end
  if before < hnr_threshold and a.total_time >= hnr_threshold then
    if call('SREM', P .. 'u:' .. a.uid .. ':hnr', a.tid) == 1 then rank_debt(a.uid) end
  end
end

-- A hit and run, unless all that makes it one has been forgiven: the bytes of then count no more.
local function owes(a)
  if a.downloaded <= hnr_min or a.total_time >= hnr_threshold then return false end
  local forgiven = tonumber(call('HGET', account_key(a.uid, a.tid), 'forgiven') or '') or 0
  return a.downloaded - forgiven > hnr_min
end

-- The user's peer went inactive. With the last one the torrent is no longer active for the user, and a hit
-- and run is decided, unless the silence holds an outage of the tracker (`decide` false).
local function release(a, decide)
  a.peers = math.max(0, a.peers - 1)
  if a.peers > 0 then return end
  call('SREM', P .. 'u:' .. a.uid .. ':active', a.tid)
  if decide and owes(a) and call('SADD', P .. 'u:' .. a.uid .. ':hnr', a.tid) == 1 then rank_debt(a.uid) end
end
