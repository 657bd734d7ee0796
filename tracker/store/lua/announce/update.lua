-- update.lua: the announce of a peer that stays in the swarm. A regular one, nine of ten, keeps the peer's kind and
-- endpoints. Writes the peer's hash and timeout, of a user also account and totals (credit.lua); other updates write
-- the arrays and counts as well.
--
-- Values are compared as text, which is exact and needs no conversion: both are decimals without leading zeros.

function speed(bytes, elapsed)
  if bytes == 0 or elapsed <= 0 then return '0' end
  return format('%.2f', bytes / elapsed)
end

-- `marks` of a peer says what else its hash has, so that most announces read one field for three: 's' speeds, 'x' more
-- than these: it is paused, has lower counters, or may not be the only peer of its user `uid` on the torrent, as one
-- whose announce has no account. False for neither.
function marks_of(paused, lower, moved, uid, a)
  return (paused == '1' or lower ~= '' or uid ~= '' and not (a and a.peers <= 1)) and 'x' or moved and 's'
end

-- Writes what differs from `stored`: endpoints, left, uploaded, downloaded, last_announce. Most peers transfer nothing
-- between two announces; those have no speeds. `marks` as stored; write_peer() writes those of other peers.
local function write_traffic(key, stored, marks, had_speed, left, uploaded, downloaded, up, down, elapsed, total_time)
  if up + down > 0 and marks then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now,
      'total_time', total_time, 'speed_up', speed(up, elapsed), 'speed_dn', speed(down, elapsed))
  elseif up + down > 0 then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now,
      'total_time', total_time, 'speed_up', speed(up, elapsed), 'speed_dn', speed(down, elapsed), 'marks', 's')
  elseif had_speed or left ~= stored[2] or uploaded ~= (stored[3] or '0') or downloaded ~= (stored[4] or '0') then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now,
      'total_time', total_time)
    if had_speed then call('HDEL', key, 'speed_up', 'speed_dn', 'marks') end
  else
    call('HSET', key, 'last_announce', now, 'total_time', total_time)
  end
end

-- A torrent with more that a regular announce may need: until when peers of the DHT may be handed out; of a user also
-- the v1 half of a hybrid, the multipliers, and whether downloads are counted.
local function load_more(torrent, of_user)
  if not of_user then
    local t = call('HMGET', torrent, unpack(field_lists.regular_torrent))
    return t, t[7]
  end
  local t = call('HMGET', torrent, unpack(field_lists.regular_torrent_of_user))
  return t, t[11], t[7], t[8], t[9], t[10]
end

-- A regular announce. Reads first, and writes only when the announce is a regular one: nil and an error say that it is
-- not, and that nothing has changed. It does what announce_other() does for the same announce, without the work that
-- only others need, and returns the same.
function update_regular(packed, ih, tid)
  local pidx, _, form, want, timeout, random, uploaded, downloaded, left, endpoint, passkey =
    read('<c40BBHI4I4sssBc0Bc0', packed, 41)
  local key, seeding = P .. 'p:' .. tid .. ':' .. pidx, left == '0'
  local stored
  if accounts then
    stored = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'marks',
      'user_id')
  else
    stored = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'marks')
  end
  local had_speed = stored[7]
  if had_speed and had_speed ~= 's' then return end -- paused, or with lower counters
  local endpoints, on_v4, own4, own6 = stored[1], #endpoint == 6, nil, nil
  if endpoints == endpoint then
    if on_v4 then own4 = endpoint else own6 = endpoint end
  elseif endpoints and #endpoints == 24 then
    own4, own6 = sub(endpoints, 1, 6), sub(endpoints, 7)
    if endpoint ~= own4 and endpoint ~= own6 then return end
  else
    return
  end
  if (stored[2] == '0') ~= seeding then return end
  local elapsed, up, down, time = now - stored[5], 0, 0, 0
  if elapsed < 0 then elapsed = since_step_back(elapsed) end
  if uploaded ~= (stored[3] or '0') then up = uploaded - (stored[3] or 0) end
  if downloaded ~= (stored[4] or '0') then down = downloaded - (stored[4] or 0) end
  if up < 0 or down < 0 then return end -- late, or a client that restarted its counters
  if elapsed > 0 then
    time = now - elapsed < outage_until and elapsed - time_out_of_service(now - elapsed) or elapsed
    if time >= max_gap then time = 0 end
  end
  local moved, uid, user, own_up, own_dn, account, total_time, seed_time = up + down > 0, stored[8]
  local changed = moved or left ~= stored[2]
  if uid then
    if elapsed < regular_after then return end
    local row = passkeys_prefix .. passkey
    if seeding then
      if changed then
        if down > 0 then return end
        user = read_regular('HMGET', row, 'user_id', 'enabled', 'upload_multiplier')
        own_up = user[3]
      else
        user = read_regular('HMGET', row, 'user_id', 'enabled')
      end
    else
      if changed then
        user = read_regular('HMGET', row, 'user_id', 'enabled', 'can_leech', 'upload_multiplier',
          'download_multiplier')
        own_up, own_dn = user[4], user[5]
      else
        user = read_regular('HMGET', row, 'user_id', 'enabled', 'can_leech')
      end
      if user[3] == '0' then return end
    end
    if user[1] ~= uid or user[2] == '0' then return end
  elseif accounts and (passkey ~= '' or rules.required) then
    return
  end
  local torrent, t, dht, hybrid_of, multi_up, multi_dn, user_downloaded = P .. 't:' .. ih
  if give_below > 0 or changed and user then
    t, dht, hybrid_of, multi_up, multi_dn, user_downloaded = load_more(torrent, user)
    if hybrid_of then return end
  else
    t = torrents_read[ih]
    if not t then
      if accounts then
        t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'arrays', 'hybrid_of')
      else
        t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'arrays')
      end
      torrents_read[ih] = t
    end
    if user and t[7] then return end
  end
  if t[1] ~= tid or t[2] == '0' or t[2] == 'pending' then return end
  if user then
    account = users_prefix .. uid .. ':t:' .. tid
    if changed then
      total_time, seed_time = load_regular(account, uid, tid, seeding, stored, left, up, down, time,
        multi_up or multi_dn or own_up or own_dn)
      if not total_time then return end
      if moved then credit_regular(tid, up, down, elapsed, multi_up, multi_dn, own_up, own_dn) end
    end
  end
  -- Nearly always the peers are read before the reply is put together: each text that is made costs memory.
  local n, peers, s4, s6, l4, l6 = want > 0 and (arrays_of[t[6]] or read_arrays(t[6])), '', 0, 0, nil, nil
  if n and form ~= 3 then
    l4, l6 = n[2], n[4] -- a seeder gets leechers only
    if not seeding then s4, s6 = n[1], n[3] end
    if form == 2 then -- no peers of the other family
      if on_v4 then s6, l6 = 0, 0 else s4, l4 = 0, 0 end
    end
    if on_v4 and s6 + l6 + n[7] == 0 and form ~= 1 and not (dht or removing or rules.untold) then
      peers, n = select_family(ih, '4', 6, s4, l4, want, random, own4), false
    end
  end
  local reply = (elapsed < early and elapsed >= 0 and form ~= 3 and 'e ' or 'u ') .. text_of[count_of[t[3]] or 0] .. ' '
    .. text_of[count_of[t[4]] or 0] .. ' ' .. text_of[count_of[t[5]] or 0] .. ' ' .. peers
  if n and form == 3 then
    reply = sockets.reply(reply, ih, seeding and 0 or n[5], n[6], want, random, endpoint, tid)
  elseif n then
    reply = add_peers(reply, ih, s4, s6, l4, l6, want, random, form == 1, on_v4, own4, own6, n[7],
      form == 1 and has_derived(call('HGET', torrent, 'joiners')) and tid, dht, tid)
  end
  local fits, adds = true, account and not total_time
  if adds then -- fails if a field is no whole number, or the account of a wrong type
    total_time = call('HINCRBY', account, 'total_time', time)
    seed_time = seeding and tonumber(redis.pcall('HINCRBY', account, 'seed_time', time)) -- nil for an error
    fits = not seeding or seed_time and seed_time >= time and seed_time <= MAX_EXACT
      and total_time >= time and total_time <= MAX_EXACT
  end
  if not fits or call('PEXPIRE', P .. 'ptimeout:' .. tid .. ':' .. pidx, timeout) == 0 then
    if adds then call('HINCRBY', account, 'total_time', -time) end
    if adds and seed_time then call('HINCRBY', account, 'seed_time', -time) end
    return
  end
  if changed or had_speed then
    write_traffic(key, stored, had_speed, had_speed, left, uploaded, downloaded, up, down, elapsed,
      (stored[6] or 0) + time)
    if moved then add_traffic(up, down, elapsed, on_v4 or form == 3 and sockets.on_v4(endpoint), form) end
  else
    call('HSET', key, 'last_announce', now, 'total_time', (stored[6] or 0) + time)
  end
  if notes_updates then redis.pcall('SADD', P .. 'updated', tid .. ':' .. pidx) end
  if not user then return reply end
  if changed then
    save_changed(account, total_time, seed_time, torrent, down, user_downloaded)
  end
  if total_time >= settle_from or seed_time and seed_time ~= total_time and seed_time >= settle_from then
    settle_regular(uid, tid, total_time, seed_time, time)
  end
  return reply, uid
end

-- The traffic of any announce, with the lower counters.
local function write_peer(r, p, a)
  local before, marks = p.stored[6], marks_of(r.paused, p.lower, p.up + p.down > 0, p.stored[7] or r.uid, a)
  if a and before == 'x' and marks ~= 'x' then a.peer_ids = r.pid end
  write_traffic(p.at, p.stored, before, p.had_speed, r.left, p.base_up, p.base_down, p.up, p.down, p.elapsed,
    p.total_time + p.time)
  if marks == 'x' or before == 'x' and marks then
    call('HSET', p.at, 'marks', marks)
  elseif before == 'x' then
    call('HDEL', p.at, 'marks')
  end
  if p.lower ~= '' then
    call('HSET', p.at, 'lower', p.lower)
  elseif p.had_lower then
    call('HDEL', p.at, 'lower')
  end
end

-- Changes the peer's entry: nearly always its traffic only, sometimes its kind or its endpoints.
local function update_peer(t, r, p, a, endpoints)
  if p.kind ~= r.kind or p.endpoints ~= endpoints then
    r.evictions = evict(t, r)
    remove_from_arrays(t, r, p)
    call('HSET', p.at, 'endpoints', endpoints, insert_peer(t, r, p))
  elseif p.paused == r.paused then
    return write_peer(r, p, a)
  end
  if p.paused ~= r.paused then call('HSET', p.at, 'paused', r.paused) end
  count_peer(t, p.kind, p.paused == '1', -1)
  count_peer(t, r.kind, r.paused == '1', 1)
  write_peer(r, p, a)
  save_torrent(t)
end

-- Announces over a WebSocket come often, and their timeouts are short: one does not shorten that of an announce over
-- HTTP or UDP.
function renew_timeout(t, r)
  local timeout = P .. 'ptimeout:' .. r.suffix
  if r.on_socket and r.v4 .. r.v6 ~= '' and call('PTTL', timeout) >= r.timeout then return end
  if call('PEXPIRE', timeout, r.timeout) == 1 then return end
  call('SET', timeout, may_grow and add_due(t.tid, r.pid, r.timeout) or '', 'PX', r.timeout)
end

-- Without an account: peers of the user that lost their endpoint may have joined before the halves were linked.
function leave_others(t, r)
  if r.uid == '' then return end
  for _ = 1, r.evictions do end_activity_of(r.uid, t.tid, false) end
end

-- Any announce of a peer that stays in the swarm; `old` is its endpoint of that family so far. Returns the outcome
-- instead, and nothing has changed, if the endpoint is another peer's.
function update(t, r, p, a, old)
  local endpoints = r.v4 .. r.v6 .. r.w
  if p.kind ~= r.kind or p.endpoints ~= endpoints then
    check_arrays(t, r)
    local outcome = old ~= r.endpoint and take_endpoint(t, r, old)
    if outcome then return outcome end
  end
  local completed = is_completion(r, p, a)
  if t.joiners then note_joiner(t, r) end
  renew_timeout(t, r)
  if p.up + p.down > 0 then count_traffic(r, p) end
  update_peer(t, r, p, a, endpoints)
  if a then
    credit_announce(t, r, p, a)
  else
    leave_others(t, r)
  end
  if completed and count_snatch(t, r, p, a) then record_announce('completed', t, r, r.uid, a) end
  if a then save_account(a) end
  if notes_updates then redis.pcall('SADD', P .. 'updated', r.suffix) end
end
