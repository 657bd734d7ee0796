-- changing.lua: announces that change more than figures: joins, stops, completions, and whatever is not a regular announce
-- of public mode. A fragment for announce.lua, after all the others.
local joined = {}

-- The user behind a passkey: id, or false and the refusal.
local function authorize(passkey, left, event)
  if not private then return '' end
  local u = call('HMGET', P .. 'user:' .. passkey, 'user_id', 'enabled', 'can_leech')
  if passkey == '' or not u[1] then return false, 'unknown passkey' end
  if u[2] == '0' then return false, 'user disabled' end
  if u[3] == '0' and left ~= '0' and event ~= 'x' then return false, 'may not leech' end
  return u[1]
end

-- The request and the peer under work, filled anew for each announce: a table of its own for each costs more than what is put into it.
local request, peer = {}, {}

local function read_request(packed)
  local r, event, with_ids = request, nil, nil
  r.ih, r.pidx, event, with_ids, r.want, r.timeout, r.random, r.uploaded, r.downloaded, r.left, r.endpoint, r.pid, r.digest,
    r.passkey = struct.unpack('<c40c40BBHI4I4sssBc0c20Bc0Bc0', packed)
  r.event, r.with_ids = string.char(event), with_ids == 1
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
  local v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'speed_up', 'paused',
    'active', unpack(r.event == 'x' and { 'n4', 'n6' } or {}))
  local p, last = peer, tonumber(v[5] or '')
  local same_user = not private or (last and call('HGET', key, 'user_id') == r.uid) or false
  p.at, p.active, p.known, p.endpoints, p.was = key, v[9] == '1', last ~= nil and same_user, v[1] or '', v
  p.kind, p.left, p.paused = kind_of(v[2], v[8]), v[2], v[8] or '0'
  p.total_time, p.up, p.down, p.elapsed, p.time = 0, 0, 0, 0, 0
  p.mine = same_user and (address_matches(p.endpoints, r.endpoint)
    or (r.digest ~= '' and p.active and call('HGET', key, 'key') == r.digest))
  if p.known then
    p.elapsed, p.total_time = now - last, tonumber(v[6] or '') or 0
    p.up, p.down = max(0, r.uploaded - (tonumber(v[3] or '') or 0)), max(0, r.downloaded - (tonumber(v[4] or '') or 0))
    if p.active and p.elapsed > 0 and p.elapsed < longest_gap then p.time = p.elapsed - away(last) end
  end
  return p
end

-- A failed command does not undo the ones before it: what is of the wrong type has to fail before the first write. Reading
-- the torrent, the peer and the account has checked those.
local function check_account(r)
  if r.uid == '' then return end
  for _, set in ipairs({ ':active', ':complete', ':incomplete', ':hnr' }) do call('SCARD', P .. 'u:' .. r.uid .. set) end
  call('HLEN', P .. 'u:' .. r.uid)
end

local function check_arrays(t, r)
  for _, family in ipairs({ r.v4 ~= '' and '4' or '6', r.v6 ~= '' and '6' or '4' }) do
    call('STRLEN', t.arrays .. r.kind .. family)
    call('STRLEN', t.arrays .. r.kind .. family .. 'i')
  end
end

local function check_all(t, r)
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do call('ZCARD', P .. 'i:' .. index) end
  call('SCARD', P .. 'tpeers:' .. t.ih)
  call('SCARD', P .. 'p:' .. r.pidx .. ':torrents')
  check_arrays(t, r)
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

-- Takes the peer out of the arrays it is in.
local function displace(t, r, p)
  local slots = call('HMGET', p.at, 'n4', 'n6')
  if slots[1] then exit(t, p.kind, '4', tonumber(slots[1]), r.pid) end
  if slots[2] then exit(t, p.kind, '6', tonumber(slots[2]), r.pid) end
end

-- Puts the peer at the end of the arrays of its kind; the answer is the hash fields that say so.
local function place(t, r)
  local n4 = r.v4 ~= '' and enter(t, r.kind, '4', r.v4, r.pid)
  local n6 = r.v6 ~= '' and enter(t, r.kind, '6', r.v6, r.pid)
  if not n6 then return 'n4', n4 end
  if not n4 then return 'n6', n6 end
  return 'n4', n4, 'n6', n6
end

-- All of a join that can fail, and then nothing has changed: slots are nobody's before the torrent is saved.
local function enlist(t, r)
  local members = P .. 'tpeers:' .. t.ih
  r.family, r.slot = place(t, r) -- who joins comes with one endpoint
  call('SADD', members, r.pidx)
  local added = redis.pcall('SADD', P .. 'p:' .. r.pidx .. ':torrents', t.tid)
  if type(added) == 'table' then
    call('SREM', members, r.pidx)
    error(added)
  end
end

local fields, filled = {}, 0
local function add(field, value)
  fields[filled + 1], fields[filled + 2], filled = field, value, filled + 2
end

-- The hash of a peer that joins, and of one that is remembered from an earlier time. What is read at each announce stands
-- first; what is 0 is left out.
local function write_join(t, r, p)
  filled = 0
  add('endpoints', r.v4 .. r.v6)
  add('left', r.left)
  if p.known then
    call('PERSIST', p.at)
  else
    if p.was[1] or p.was[5] or p.was[9] then call('UNLINK', p.at) end -- another user's, or what somebody else wrote
    p.paused = '0'
  end
  if p.known or r.uploaded ~= '0' then add('uploaded', r.uploaded) end
  if p.known or r.downloaded ~= '0' then add('downloaded', r.downloaded) end
  add('last_announce', now)
  if p.known then
    add('total_time', p.total_time)
    add('speed_up', speed(p.up, p.elapsed))
    add('speed_dn', speed(p.down, p.elapsed))
  else
    add('first_announce', now)
  end
  add('active', '1')
  add(r.family, r.slot)
  if p.paused ~= r.paused then add('paused', r.paused) end
  if r.uid ~= '' then add('user_id', r.uid) end
  if r.digest ~= '' then add('key', r.digest) end
  call('HSET', p.at, unpack(fields, 1, filled))
end

local function write_update(r, p)
  write_figures(p.at, p.was, r.left, r.uploaded, r.downloaded, p.up, p.down, p.elapsed, p.total_time + p.time)
end

local function keep_alive(t, r, joining)
  local key = P .. 'ptimeout:' .. r.suffix
  if not joining and call('PEXPIRE', key, r.timeout) == 1 then return end
  call('SET', key, may_grow and put_due(t.tid, r.pid, r.timeout) or '', 'PX', r.timeout)
end

-- A seeder that never downloaded has not completed anything now, though some clients say so when they start.
local function completes(r, p)
  return r.event == 'c' and r.left == '0' and not (p.active and p.kind == 's' and r.downloaded == '0')
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
  redis.pcall('ZADD', P .. 'i:snatches', t.snatches, t.tid)
end

local function join(t, r, p)
  joined[#joined + 1] = t.tid
  write_join(t, r, p)
  count(t, r.kind, r.paused == '1', 1)
  save(t)
end

-- The peer's own entry changes: nearly always its figures only, sometimes its kind or its endpoints.
local function change(t, r, p)
  local endpoints = r.v4 .. r.v6
  if p.kind ~= r.kind or p.endpoints ~= endpoints then
    check_arrays(t, r)
    check_account(r)
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

local function apply(t, r, p, a)
  local joining, completed = not p.active, completes(r, p)
  if joining then enlist(t, r) end
  keep_alive(t, r, joining)
  note_moved(p.up, p.down, p.elapsed, #r.endpoint == 6)
  redis.pcall('HINCRBY', t.key, 'announces', 1)
  if joining then join(t, r, p) else change(t, r, p) end
  if a then
    credit_user(t, r, p, a)
    sort_user(t, r, a, joining)
  end
  if completed then snatch(t, r, p, a) end
  if a then save_account(a) end
end

local function stop(t, r, p, a)
  local timeout = P .. 'ptimeout:' .. r.suffix
  depart(t, r.pid, r.pidx, p.left, p.paused, p.was[10], p.was[11])
  save(t)
  note_moved(p.up, p.down, p.elapsed, #r.endpoint == 6)
  redis.pcall('HINCRBY', t.key, 'announces', 1)
  if memory > 0 then
    write_update(r, p)
    remember(p.at)
    call('DEL', timeout)
  else
    call('UNLINK', p.at, timeout)
  end
  if a then
    credit_user(t, r, p, a)
    release(a, true)
    save_account(a)
  end
end

local OUTCOMES = { update = 'u', early = 'e', join = 'j', leave = 'l', stranger = 's' }

local function reply(t, r, outcome)
  local head = OUTCOMES[outcome] .. ' ' .. decimal(t.seeders) .. ' ' .. decimal(t.leechers) .. ' ' .. decimal(t.snatches) .. ' '
  if r.want == 0 or outcome == 'leave' then return head end
  local seeding = r.kind == 's' or r.paused == '1'
  local ok, told = pcall(answer, head, t.arrays, seeding and 0 or t.s4, seeding and 0 or t.s6, t.l4, t.l6, r.want, r.random,
    r.with_ids, #r.endpoint == 6, r.v4 ~= '' and r.v4, r.v6 ~= '' and r.v6)
  return ok and told or head -- without peers where an array is somebody else's key: what was applied must not fail now
end

local function refuse(code, reason)
  return { 1, code, reason or '' }
end

-- Before a join, and whenever a torrent has to register itself: nothing is written when this refuses.
local function admit(t, r, registered)
  if not may_grow then return nil, 'store full' end
  check_account(r)
  if registered and registered == t.tid and call('GET', P .. 'torrent_id:' .. registered) == t.ih then return registered end
  check_all(t, r)
  if registered and not string.match(registered, '^[1-9]%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$') then
    return nil, 'bad torrent id'
  end
  if registered and id_taken(t, registered) then return nil, 'torrent id in use' end
  if not registered then
    local room, full = may_register(r.endpoint, most_torrents, most_per_hour)
    if not room then return nil, full end
    registered = register(t)
  end
  bind(t, registered)
  return registered
end

-- `registered` and `denied` are what the torrent's keys held before the batch. An earlier announce of the batch may have
-- registered it since.
local function change_swarm(packed, registered, denied)
  local r, refusal = read_request(packed), nil
  r.uid, refusal = authorize(r.passkey, r.left, r.event)
  if refusal then return refuse(refusal) end
  if denied then return refuse('denied', denied) end
  registered = registered or call('MGET', P .. 'info_hash:' .. r.ih)[1]
  if not registered and not open then return refuse('unknown torrent') end
  local t, enabled, snatches = load(r.ih, 'enabled', 'snatches')
  t.snatches = stored_count(snatches) or 0
  if enabled == '0' then return refuse('disabled', call('HGET', t.key, 'reason') or '') end

  -- The peers of a swarm go by the id they joined with, whatever the site writes meanwhile.
  local tid = t.tid and t.seeders + t.leechers > 0 and t.tid or registered
  local p = load_peer(tid or '', r)
  if p.active then t.tid = tid end -- also where somebody else has deleted what says so
  r.paused = r.event == 'p' and r.left ~= '0' and '1' or '0'
  r.kind = kind_of(r.left, r.paused)
  r.v4, r.v6 = merge(p.active and p.mine and p.endpoints or '', r.endpoint)
  if p.active and not p.mine then return reply(t, r, 'stranger') end
  if r.event == 'x' then
    if p.active then stop(t, r, p, r.uid ~= '' and load_account(r.uid, tid)) end
    return reply(t, r, 'leave')
  end

  if not p.active or not registered then
    tid, refusal = admit(t, r, registered and tid)
    if refusal then return refuse(refusal) end
    r.suffix = tid .. ':' .. r.pidx
    p.at = P .. 'p:' .. r.suffix
  end
  apply(t, r, p, r.uid ~= '' and load_account(r.uid, tid))
  if not p.active then return reply(t, r, 'join') end
  return reply(t, r, p.elapsed < early and p.elapsed >= 0 and 'early' or 'update')
end
