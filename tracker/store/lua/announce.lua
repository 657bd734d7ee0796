#!lua
-- announce.lua: applies a batch of announces, each wholly or not at all, and picks peers for them.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)                       ARGV[2]  peer memory (s; 0: a peer's hash dies with it)
-- ARGV[3]   hnr minimum (bytes)                 ARGV[4]  hnr threshold (s)
-- ARGV[5]   longest gap that counts as time on a torrent (s)
-- ARGV[6]   most credit (bytes per second)      ARGV[7]  '1': a passkey is required (private mode)
-- ARGV[8]   '1': unknown torrents register (open mode)
-- ARGV[9]   most torrents (open mode)           ARGV[10] new torrents per address and hour (open mode)
-- ARGV[11]  '1': memory may grow; '0': the store is full, joins are refused
-- ARGV[12..] one announce each, packed (struct, big-endian): as strings of their own, fifteen for each announce, the
--   server's work of taking them in cost more than reading the swarm. In order: info hash and peer id as 40 hex
--   digits each (c40), peer id (c20), event (c1: u update, s started, c completed, x stopped, p paused), uploaded,
--   downloaded, left (d; bytes, left -1 when unsaid), peers wanted (H), timeout (d, ms), a random integer (I4), 1 when peer ids are wanted (B); with a length before each (B): endpoint (6 or
--   18 bytes), digest of the client's key (8 bytes or none), passkey (or none)
-- Answer    one list for each announce, in order:
--   { 0, seeders, leechers, snatches, peers, peers6, ids, ids6, outcome }   outcome: update, join, leave, stranger
--   { 1, code, reason }   nothing was changed; reason only where an operator wrote one
--   and after the last one { bytes up, bytes down over IPv4, the same over IPv6 }: what the peers of this batch say they
--   have moved since they last announced, no faster than the most credit
local P, now, memory = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local hnr_min, hnr_threshold = tonumber(ARGV[3]), tonumber(ARGV[4])
local longest_gap, most_credit = tonumber(ARGV[5]), tonumber(ARGV[6])
local private, open, may_grow = ARGV[7] == '1', ARGV[8] == '1', ARGV[11] == '1'
--@ include gap.lua
--@ include swarm.lua
--@ include users.lua
--@ include registering.lua
--@ include picking.lua

local MAX = 9007199254740991
local checked = false
local moved = { 0, 0, 0, 0 }

-- The user behind a passkey: id, or false and the refusal.
local function authorize(passkey, left, event)
  if not private then return '' end
  local u = call('HMGET', P .. 'user:' .. passkey, 'user_id', 'enabled', 'can_leech')
  if passkey == '' or not u[1] then return false, 'unknown passkey' end
  if u[2] == '0' then return false, 'user disabled' end
  if u[3] == '0' and left ~= '0' and event ~= 'x' then return false, 'may not leech' end
  return u[1]
end

-- The request, the peer and the torrent under work, filled anew for each announce: a table of its own for each costs
-- more than what is put into it.
local request, peer, torrent = {}, {}, {}

local function read_request(packed)
  local r, left, with_ids = request, nil, nil
  r.ih, r.pidx, r.pid, r.event, r.uploaded, r.downloaded, left, r.want, r.timeout, r.random, with_ids,
    r.endpoint, r.digest, r.passkey = struct.unpack('>c40c40c20c1dddHdI4BBc0Bc0Bc0', packed)
  r.left = left == 0 and '0' or left > 0 and left or ''
  r.with_ids = with_ids == 1
  return r
end

-- Any address of the peer, whatever the port, is the peer's: a port may change, an address is hard to borrow.
local function address_matches(endpoints, endpoint)
  if endpoints == endpoint then return true end
  local n, size = #endpoints, #endpoint
  if n == 24 then
    return string.sub(endpoint, 1, -3) == (size == 6 and string.sub(endpoints, 1, 4) or string.sub(endpoints, 7, 22))
  end
  return n == size and string.sub(endpoints, 1, -3) == string.sub(endpoint, 1, -3)
end

-- What is stored of the peer, whose it is, and what this announce adds to it. Reading a field costs a walk through
-- the hash, so the rarely needed ones are read where they are needed, and those here stand first in it.
local function load_peer(tid, r)
  r.suffix = tid .. ':' .. r.pidx
  local key = P .. 'p:' .. r.suffix
  local v = call('HMGET', key, 'active', 'endpoints', 'left', 'paused', 'uploaded', 'downloaded', 'last_announce', 'total_time')
  local p, last = peer, tonumber(v[7] or '')
  local same_user = not private or (last and call('HGET', key, 'user_id') == r.uid) or false
  p.at, p.active, p.known, p.endpoints = key, v[1] == '1', last ~= nil and same_user, v[2] or ''
  p.kind, p.left, p.paused = kind_of(v[3], v[4]), v[3], v[4] or '0'
  p.total_time, p.up, p.down, p.elapsed, p.time = 0, 0, 0, 0, 0
  p.mine = same_user and (address_matches(p.endpoints, r.endpoint)
    or (r.digest ~= '' and p.active and call('HGET', key, 'key') == r.digest))
  if p.known then
    p.elapsed, p.total_time = now - last, tonumber(v[8] or '') or 0
    p.up = math.max(0, r.uploaded - (tonumber(v[5] or '') or 0))
    p.down = math.max(0, r.downloaded - (tonumber(v[6] or '') or 0))
    if p.active and p.elapsed > 0 and p.elapsed < longest_gap then p.time = p.elapsed - away(last) end
  end
  return p
end

-- A failed command does not undo the ones before it: what is of the wrong type has to fail here, before the
-- first write. Reading the torrent, the peer and the account has checked those.
local function check_types(t, r)
  local name = r.kind .. (#r.endpoint == 6 and '4' or '6')
  call('SCARD', P .. 'tpeers:' .. t.ih)
  call('SCARD', P .. 'p:' .. r.pidx .. ':torrents')
  call('STRLEN', t.arrays .. name)
  call('STRLEN', t.arrays .. name .. 'i')
  if not checked then
    for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do call('ZCARD', P .. 'i:' .. index) end
    checked = true
  end
  if r.uid == '' then return end
  for _, set in ipairs({ ':active', ':complete', ':incomplete', ':hnr' }) do call('SCARD', P .. 'u:' .. r.uid .. set) end
  call('HLEN', P .. 'u:' .. r.uid)
end

-- The endpoints of a dual-stack peer are kept together, IPv4 first.
local function merge(endpoints, endpoint)
  if endpoints == endpoint or endpoints == '' then
    if #endpoint == 6 then return endpoint, '' else return '', endpoint end
  end
  local v4 = (#endpoints == 6 or #endpoints == 24) and string.sub(endpoints, 1, 6) or ''
  local v6 = #endpoints >= 18 and string.sub(endpoints, -18) or ''
  if #endpoint == 6 then v4 = endpoint else v6 = endpoint end
  return v4, v6
end

-- Bytes to credit; what is above the rate a line can carry is cut and counted.
local function credit(bytes, multiplier, elapsed)
  local earned = bytes * math.max(0, tonumber(multiplier or '') or 1)
  local most = most_credit * math.max(1, elapsed)
  if earned > most then
    call('INCRBY', P .. 'stats:credit_cut', decimal(math.min(earned - most, MAX)))
    earned = most
  end
  return decimal(math.floor(math.min(earned, MAX)))
end

-- What the user gains by this announce.
local function credit_user(t, r, p, a)
  local user = P .. 'u:' .. r.uid
  call('HINCRBY', user, 'announces', 1)
  call('HSET', user, 'passkey', r.passkey)
  a.uploaded, a.downloaded = math.min(MAX, a.uploaded + p.up), math.min(MAX, a.downloaded + p.down)
  if p.up + p.down > 0 then
    local multiplier = call('HMGET', t.key, 'multi_up', 'multi_dn')
    call('HINCRBY', user, 'uploaded', credit(p.up, multiplier[1], p.elapsed))
    call('HINCRBY', user, 'downloaded', credit(p.down, multiplier[2], p.elapsed))
  end
  if p.time > 0 then add_time(a, now - p.time, now, p.kind == 's') end
end

-- Which of the user's sets the torrent is in. Once complete it stays so.
local function sort_user(t, r, a, joining)
  local user = P .. 'u:' .. r.uid
  if joining or a.peers == 0 then -- an account without peers was deleted and made anew meanwhile
    a.peers = a.peers + 1
    call('SADD', user .. ':active', t.tid)
  end
  if r.kind == 's' then
    call('SREM', user .. ':incomplete', t.tid)
    call('SADD', user .. ':complete', t.tid)
  elseif joining and call('SISMEMBER', user .. ':complete', t.tid) == 0 then
    call('SADD', user .. ':incomplete', t.tid)
  end
end

local function speed(bytes, elapsed)
  if bytes == 0 or elapsed <= 0 then return '0' end
  return string.format('%.2f', bytes / elapsed)
end

-- Takes the peer out of the arrays it is in.
local function displace(t, r, p)
  local slots = call('HMGET', p.at, 'n4', 'n6')
  if slots[1] then exit(t, p.kind, '4', tonumber(slots[1]), r.pid) end
  if slots[2] then exit(t, p.kind, '6', tonumber(slots[2]), r.pid) end
end

-- Puts the peer at the end of the arrays of its kind; the answer is the hash fields that say so.
local function place(t, r)
  if r.v6 == '' then return 'n4', enter(t, r.kind, '4', r.v4, r.pid) end
  if r.v4 == '' then return 'n6', enter(t, r.kind, '6', r.v6, r.pid) end
  return 'n4', enter(t, r.kind, '4', r.v4, r.pid), 'n6', enter(t, r.kind, '6', r.v6, r.pid)
end

-- The hash of a peer that joins, and of one that is remembered from an earlier time.
local function write_join(t, r, p)
  if p.known then
    call('PERSIST', p.at)
  else
    call('UNLINK', p.at)
    p.paused = '0'
  end
  call('HSET', p.at, 'active', '1', 'endpoints', r.v4 .. r.v6, 'left', r.left,
    'uploaded', r.uploaded, 'downloaded', r.downloaded, 'last_announce', now, 'total_time', p.total_time,
    'speed_up', speed(p.up, p.elapsed), 'speed_dn', speed(p.down, p.elapsed), place(t, r))
  if not p.known then call('HSET', p.at, 'first_announce', now) end
  if p.paused ~= r.paused then call('HSET', p.at, 'paused', r.paused) end
  if r.uid ~= '' then call('HSET', p.at, 'user_id', r.uid) end
  if r.digest ~= '' then call('HSET', p.at, 'key', r.digest) end
end

local function write_update(r, p)
  call('HSET', p.at, 'left', r.left, 'uploaded', r.uploaded, 'downloaded', r.downloaded, 'last_announce', now,
    'total_time', p.total_time + p.time, 'speed_up', speed(p.up, p.elapsed), 'speed_dn', speed(p.down, p.elapsed))
end

-- Renewing a timeout is cheaper than setting it. The due lists are written once for the whole batch: there are only
-- so many deadlines in it, and an entry too many does no harm.
local DUE_STEP = 2 -- seconds: a list holds the timeouts that end in the two seconds before its deadline
local due_entries = {}

local function keep_alive(t, r)
  local key = P .. 'ptimeout:' .. r.suffix
  if call('PEXPIRE', key, r.timeout) == 0 then call('SET', key, '1', 'PX', r.timeout) end
  if may_grow then
    local due = math.ceil((now + 1 + r.timeout / 1000) / DUE_STEP) * DUE_STEP
    local entries = due_entries[due]
    if not entries then
      entries = {}
      due_entries[due] = entries
    end
    entries[#entries + 1] = struct.pack('>I8c20', tonumber(t.tid), r.pid)
  end
end

local function save_due_entries()
  for due, entries in pairs(due_entries) do
    local list = P .. 'due:' .. decimal(due)
    if call('APPEND', list, table.concat(entries)) == #entries * 28 then call('EXPIREAT', list, decimal(due + 86400)) end
  end
end

-- A seeder that never downloaded has not completed anything now, though some clients say so when they start.
local function completes(r, p)
  return r.event == 'c' and r.left == '0' and not (p.active and p.kind == 's' and r.downloaded == 0)
end

-- Counts a completion once per peer and torrent, and where there are users once per user and torrent.
local function snatch(t, r, p, a)
  if call('HGET', p.at, 'completed') == '1' then return end
  call('HSET', p.at, 'completed', '1')
  if a then
    if a.completed_at then return end
    call('HSET', account_key(r.uid, t.tid), 'completed_at', now)
    call('HINCRBY', P .. 'u:' .. r.uid, 'snatches', 1)
  end
  t.snatches = call('HINCRBY', t.key, 'snatches', 1)
  call('ZADD', P .. 'i:snatches', t.snatches, t.tid)
end

local joined = {}

local function join(t, r, p)
  joined[#joined + 1] = t.tid
  call('SADD', P .. 'tpeers:' .. t.ih, r.pidx)
  call('SADD', P .. 'p:' .. r.pidx .. ':torrents', t.tid)
  write_join(t, r, p)
  count(t, r.kind, r.paused == '1', 1)
  save(t)
end

-- The peer's own entry changes: nearly always its figures only, sometimes its kind or its endpoints.
local function change(t, r, p)
  local endpoints = r.v4 .. r.v6
  if p.kind ~= r.kind or p.endpoints ~= endpoints then
    check_types(t, r)
    displace(t, r, p)
    call('HSET', p.at, 'endpoints', endpoints, place(t, r))
  elseif p.paused == r.paused then
    return write_update(r, p)
  end
  if p.paused ~= r.paused then call('HSET', p.at, 'paused', r.paused) end
  count(t, p.kind, p.paused == '1', -1)
  count(t, r.kind, r.paused == '1', 1)
  write_update(r, p)
  save(t)
end

local function note_moved(r, p)
  if p.up + p.down == 0 then return end
  local most, up = most_credit * math.max(1, p.elapsed), #r.endpoint == 6 and 1 or 3
  moved[up] = math.min(MAX, moved[up] + math.min(p.up, most))
  moved[up + 1] = math.min(MAX, moved[up + 1] + math.min(p.down, most))
end

local function apply(t, r, p, a)
  keep_alive(t, r)
  note_moved(r, p)
  call('HINCRBY', t.key, 'announces', 1)
  local joining, completed = not p.active, completes(r, p)
  if joining then join(t, r, p) else change(t, r, p) end
  if a then
    credit_user(t, r, p, a)
    sort_user(t, r, a, joining)
  end
  if completed then snatch(t, r, p, a) end
  if a then save_account(a) end
end

local function stop(t, r, p, a)
  note_moved(r, p)
  call('HINCRBY', t.key, 'announces', 1)
  if memory > 0 then
    call('HSET', p.at, 'uploaded', r.uploaded, 'downloaded', r.downloaded, 'last_announce', now,
      'speed_up', speed(p.up, p.elapsed), 'speed_dn', speed(p.down, p.elapsed),
      'total_time', p.total_time + p.time)
  end
  leave(t, r.pid, r.pidx, p.left, p.paused)
  save(t)
  if a then
    credit_user(t, r, p, a)
    release(a, true)
    save_account(a)
  end
end

local function answer(t, r, outcome)
  local peers, peers6, ids, ids6 = '', '', '', ''
  if r.want > 0 and outcome ~= 'leave' then
    peers, peers6, ids, ids6 = pick(t, r.want, #r.endpoint == 6, r.kind == 's' or r.paused == '1', r.random,
      r.v4 ~= '' and r.v4, r.v6 ~= '' and r.v6, r.with_ids)
  end
  return { 0, t.seeders, t.leechers, t.snatches, peers, peers6, ids, ids6, outcome }
end

local function refuse(code, reason)
  return { 1, code, reason or '' }
end

-- Before a join, and whenever a torrent has to register itself: nothing is written when this refuses.
local function admit(t, r, registered)
  if not may_grow then return nil, 'store full' end
  check_types(t, r)
  if registered and not string.match(registered, '^[1-9]%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$') then
    return nil, 'bad torrent id'
  end
  if registered and id_taken(t, registered) then return nil, 'torrent id in use' end
  if not registered then
    local room, full = may_register(r.endpoint, tonumber(ARGV[9]), tonumber(ARGV[10]))
    if not room then return nil, full end
    registered = register(t)
  end
  bind(t, registered)
  return registered
end

local function announce(packed)
  local r, refusal = read_request(packed), nil
  r.uid, refusal = authorize(r.passkey, r.left, r.event)
  if refusal then return refuse(refusal) end
  local known = call('MGET', P .. 'info_hash:' .. r.ih, P .. 'deny:' .. r.ih)
  local registered = known[1]
  if known[2] then return refuse('denied', known[2]) end
  if not registered and not open then return refuse('unknown torrent') end
  local t = load(r.ih, torrent)
  if t.enabled == '0' then return refuse('disabled', call('HGET', t.key, 'reason') or '') end

  -- The peers of a swarm go by the id they joined with, whatever the site writes meanwhile.
  local tid = t.tid and t.seeders + t.leechers > 0 and t.tid or registered
  local p = load_peer(tid or '', r)
  r.paused = r.event == 'p' and r.left ~= '0' and '1' or '0'
  r.kind = kind_of(r.left, r.paused)
  r.v4, r.v6 = merge(p.active and p.mine and p.endpoints or '', r.endpoint)
  if p.active and not p.mine then return answer(t, r, 'stranger') end
  if r.event == 'x' then
    if p.active then stop(t, r, p, r.uid ~= '' and load_account(r.uid, tid)) end
    return answer(t, r, 'leave')
  end

  if not p.active or not registered then
    tid, refusal = admit(t, r, registered and tid)
    if refusal then return refuse(refusal) end
    r.suffix = tid .. ':' .. r.pidx
    p.at = P .. 'p:' .. r.suffix
  end
  apply(t, r, p, r.uid ~= '' and load_account(r.uid, tid))
  return answer(t, r, p.active and 'update' or 'join')
end

local answers = {}
for i = 12, #ARGV do
  local ok, reply = pcall(announce, ARGV[i])
  answers[#answers + 1] = ok and reply or { 1, 'error', type(reply) == 'table' and reply.err or tostring(reply) }
end
save_totals()
pcall(save_due_entries)
pcall(rank, joined)
answers[#answers + 1] = moved
return answers
