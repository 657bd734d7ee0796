-- join.lua: a peer joins a swarm. Writes all that a swarm consists of: arrays, sets, counts, addresses, the peer's hash
-- and timeout.

-- A user has at most `max_peers` peers in a torrent (0: any number). When one more joins, the one that is silent
-- longest leaves.

-- The user's other active peers, in the order of their joins. Nothing is written yet. Nil when the account lists fewer
-- than allowed.
local function load_own_peers(t, r, a)
  local listed, own = sub(a.listed or '', -20 * rules.max_listed), {}
  if #listed < 20 * rules.max_peers then return end
  for at = 1, #listed - 19, 20 do
    local pid = sub(listed, at, at + 19)
    if pid ~= r.pid then
      local v = call('HMGET', P .. 'p:' .. t.tid .. ':' .. to_hex(pid), 'active', 'user_id', 'last_announce')
      if v[1] == '1' and v[2] == r.uid then
        own[#own + 1] = { pid = pid, last = tonumber(v[3] or '') or 0 }
      end
    end
  end
  if #own >= rules.max_peers then -- arrays of a wrong type have to fail before the first write
    for _, array in ipairs({ 's4', 's4i', 'l4', 'l4i', 's6', 's6i', 'l6', 'l6i' }) do
      call('STRLEN', t.arrays .. array)
    end
  end
  return own
end

-- Removes as many of the user's peers as make room for one. Those that evict() has removed do not count; of peers that
-- are silent equally long the first one leaves. Returns the number removed, and what the account lists after the join.
local function remove_surplus(t, r, own)
  local stay, removed, ids = {}, 0, ''
  for _, one in ipairs(own) do
    if not r.evicted or load_holder(t, one.pid, '').active then stay[#stay + 1] = one end
  end
  while #stay >= rules.max_peers do
    local longest = 1
    for i = 2, #stay do
      if stay[i].last < stay[longest].last then longest = i end
    end
    local holder = load_holder(t, table.remove(stay, longest).pid, '')
    drop_holder(t, holder, holder.endpoints)
    removed = removed + 1
  end
  for _, one in ipairs(stay) do ids = ids .. one.pid end
  return removed, ids .. r.pid
end

-- Whether register.lua has to run before the peer can join: the store does not know the user or the torrent yet, or the
-- torrent under another id. Only an empty swarm can have lost its id to another torrent.
function needs_registration(t, r, registered, u)
  return u and u.passkey ~= r.passkey or not registered or registered ~= t.tid
    or t.seeders + t.leechers == 0 and call('GET', P .. 'torrent_id:' .. registered) ~= t.ih
end

-- Adds the peer to the swarm's sets and arrays. Returns its slot.
local function enter_swarm(t, r, a, own, members, torrents, family)
  call('SADD', members, r.pidx)
  call('SADD', torrents, t.tid)
  if r.evicted then r.evictions = evict(t, r) end
  if own then
    local removed, ids = remove_surplus(t, r, own)
    r.evictions, a.peer_ids = r.evictions + removed, ids
  end
  return insert_slot(t, r.kind, family, r.endpoint, r.pid, r.random)
end

-- Writes the hash of a peer that joins. A remembered peer keeps its totals. Fields that each announce reads come first;
-- a 0 is left out.
local values = {} -- fields and values; reused by each join
local function write_join(r, p, a, slot_field, slot)
  local known, n = p.known, 4
  values[1], values[2], values[3], values[4] = 'endpoints', r.endpoint, 'left', r.left
  if r.uid ~= '' then
    values[5], values[6], n = 'user_id', r.uid, 6
  elseif known then -- its user left before accounts were switched off
    call('HDEL', p.at, 'user_id')
  end
  if known or r.uploaded ~= '0' or r.downloaded ~= '0' then
    values[n + 1], values[n + 2], values[n + 3], values[n + 4] = 'uploaded', p.base_up, 'downloaded', p.base_down
    n = n + 4
  end
  values[n + 1], values[n + 2], values[n + 3], values[n + 4] = 'last_announce', now, 'active', '1'
  values[n + 5], values[n + 6], values[n + 7], values[n + 8], n =
    slot_field, slot, known and 'rejoined' or 'first_announce', now, n + 8
  if known then
    call('PERSIST', p.at)
    values[n + 1], values[n + 2] = 'total_time', p.total_time
    values[n + 3], values[n + 4] = 'speed_up', speed(p.up, p.elapsed)
    values[n + 5], values[n + 6] = 'speed_dn', speed(p.down, p.elapsed)
    values[n + 7], values[n + 8], n = 'udp', r.form == 2 and '1' or '0', n + 8
    if p.lower ~= '' then values[n + 1], values[n + 2], n = 'lower', p.lower, n + 2 end
    if p.lower == '' and p.had_lower then call('HDEL', p.at, 'lower') end
  else
    if p.exists then call('UNLINK', p.at) end -- another program wrote it
    p.paused = '0'
    if r.form == 2 then values[n + 1], values[n + 2], n = 'udp', '1', n + 2 end
  end
  if p.paused ~= r.paused then values[n + 1], values[n + 2], n = 'paused', r.paused, n + 2 end
  local marks = marks_of(r.paused, known and p.lower or '', known, r.uid, a)
  if marks then values[n + 1], values[n + 2], n = 'marks', marks, n + 2 end
  if r.key ~= '' then values[n + 1], values[n + 2], n = 'key', digest_of(r.key), n + 2 end
  if r.announced then values[n + 1], values[n + 2], n = 'peer_id', r.announced, n + 2 end
  if r.agent ~= '' then values[n + 1], values[n + 2], n = 'agent', r.agent, n + 2 end
  call('HSET', p.at, unpack(values, 1, n))
end

function record_announce(change, t, r, uid, a)
  if max_changes == 0 then return end
  local totals = a or r.moves_only and feed.totals(uid, t.tid)
    or { uploaded = r.uploaded, downloaded = r.downloaded, seed_time = '0' }
  feed.record(change, t, uid, r.left, totals, { pidx = r.pidx, announced = r.announced and to_hex(r.announced),
    endpoints = r.v4 .. r.v6, agent = r.agent, uploaded = r.uploaded, downloaded = r.downloaded })
end

-- A peer joins. Returns the outcome instead, and nothing has changed, if the endpoint is another peer's.
function join(t, r, p, a)
  local tid, endpoint = t.tid, r.endpoint
  local empty = t.seeders + t.leechers == 0
  local own = a and rules.max_peers > 0 and load_own_peers(t, r, a)
  local outcome = take_endpoint(t, r, '')
  if outcome then return outcome end
  local members, torrents = P .. 'tpeers:' .. t.ih, P .. 'p:' .. r.pidx .. ':torrents'
  local family = r.on_v4 and '4' or r.on_socket and 'w' or '6'
  local ok, slot = pcall(enter_swarm, t, r, a, own, members, torrents, family)
  if not ok then
    redis.pcall('SREM', members, r.pidx)
    redis.pcall('SREM', torrents, tid)
    remove_addresses(t, endpoint, r.pid)
    error(slot)
  end
  -- From here on nothing fails.
  call('SET', P .. 'ptimeout:' .. r.suffix, may_grow and add_due(tid, r.pid, r.timeout) or '', 'PX', r.timeout)
  if p.up + p.down > 0 then count_traffic(r, p) end
  sums.joined[tid] = true
  if empty then redis.pcall('ZREM', P .. 'i:empty', tid) end
  local completed = is_completion(r, p, a)
  write_join(r, p, a, 'n' .. family, slot)
  count_peer(t, r.kind, r.paused == '1', 1)
  save_torrent(t)
  if t.joiners or r.announced then note_joiner(t, r) end
  if a then credit_announce(t, r, p, a) else leave_others(t, r) end
  if max_changes > 0 then record_announce('joined', t, r, r.uid, a) end
  if completed and count_snatch(t, r, p, a) then record_announce('completed', t, r, r.uid, a) end
  if a then save_account(a) end
end

function score_joined()
  add_to_scoring(sums.joined)
end
