-- announce_other.lua: all announces that are not regular, such as joins, stops and completions. A fragment of
-- announce.lua, after announce_apply.lua. Its tables: t is the torrent, r the request, p the peer, a the account of the
-- user; P is the prefix of the keys. p.taken: the peer id belongs to another client.

local OUTCOMES = {
  update = 'u', early = 'e', join = 'j', leave = 'l', absent = 'a', stranger = 's', displaced = 'd', over = 'o',
}

local function reply(t, r, outcome)
  local head = OUTCOMES[outcome] .. ' ' .. decimal(t.seeders) .. ' ' .. decimal(t.leechers) .. ' '
    .. decimal(t.snatches) .. ' '
  if r.want == 0 or outcome == 'leave' or outcome == 'absent' then return head end
  local seeding, on_v4 = r.kind == 's' or r.paused == '1', #r.endpoint == 6
  local s4, s6, l4, l6 = seeding and 0 or t.s4, seeding and 0 or t.s6, t.l4, t.l6
  if r.own_family then
    if on_v4 then s6, l6 = 0, 0 else s4, l4 = 0, 0 end
  end
  local ok, with_peers = pcall(add_peers, head, t.arrays, s4, s6, l4, l6, r.want, r.random, r.with_ids, on_v4,
    r.v4 ~= '' and r.v4, r.v6 ~= '' and r.v6,
    t.crowded and t.crowded > 0, r.with_ids and call('HGET', t.key, 'derived') and t.tid, t.dht, t.tid)
  return ok and with_peers or head -- an array of a wrong type gives no peers: the announce is applied by now
end

-- The fields of a torrent that an announce needs, without an account and with one.
local DHT = give_below > 0 and 'dht' or nil
local ANONYMOUS = { 'enabled', 'snatches', 'sole', 'derived', DHT }
local OF_A_USER = { 'enabled', 'snatches', 'sole', 'derived', 'multi_up', 'multi_dn', 'user_downloaded', DHT }

-- An existing swarm keeps the torrent id that its peers joined with, whatever the site writes meanwhile.
local function load_swarm(r, registered)
  local t, enabled, snatches, sole, derived, multi_up, multi_dn, user_downloaded, dht
  if r.uid == '' then
    t, enabled, snatches, sole, derived, dht = load_torrent(r.ih, unpack(ANONYMOUS))
  else
    t, enabled, snatches, sole, derived, multi_up, multi_dn, user_downloaded, dht =
      load_torrent(r.ih, unpack(OF_A_USER))
    t.multi_up, t.multi_dn, t.user_downloaded = multi_up, multi_dn, user_downloaded
  end
  t.dht = dht
  t.snatches, t.sole = parse_count(snatches) or 0, sole
  return t, t.tid and t.seeders + t.leechers > 0 and t.tid or registered, enabled, derived
end

local function find_peer(r, tid, derived)
  local p = load_peer(tid or '', r)
  if p.taken and (r.digest ~= '' or not p.same_user) then
    derive_id(r)
    return load_peer(tid, r)
  elseif derived and tid and not p.active and (r.digest ~= '' or accounts) then
    return load_derived(tid, r, p.known)
  end
  return p
end

-- Does the steps that may fail, before the peer is written. Returns the outcome if that ends the announce, else nil and
-- the account.
local function prepare(t, r, p, tid, old)
  local a, outcome = load_credited_account(r, tid, not p.active and max_peers > 0 and ACCOUNT_WITH_PEERS or nil)
  r.evictions, r.evicted = 0, nil
  if not p.active then
    outcome = start_join(t, r, a)
  elseif p.kind ~= r.kind or p.endpoints ~= r.v4 .. r.v6 then
    check_arrays(t, r)
    if old ~= r.endpoint then outcome = take_endpoint(t, r, old) end
  end
  return outcome, a
end

-- `registered` and `denied` are the values of the torrent's keys before the batch. An earlier announce of the batch may
-- have registered or deleted the torrent since.
local function announce_of(r, registered, denied)
  local leaves = r.event == 'x' -- this needs no permission: the peer has to be the client's own, and that is all
  if denied and not leaves then return refuse('denied', denied) end
  if not registered or forgotten > 0 then registered = call('MGET', P .. 'info_hash:' .. r.ih)[1] end
  if not registered and not open and not leaves then return refuse('unknown torrent') end
  local t, tid, enabled, derived = load_swarm(r, registered)
  if enabled == '0' and not leaves then return refuse('disabled', call('HGET', t.key, 'reason') or '') end

  local p = find_peer(r, tid, derived)
  if not (p.active or registered or open) then return refuse('unknown torrent') end
  if p.active then t.tid = tid end -- also when another program deleted the field
  r.paused = r.event == 'p' and r.left ~= '0' and '1' or '0'
  r.kind = kind_of(r.left, r.paused)
  local v4, v6 = split_families(p.active and p.mine and p.endpoints or '')
  if #r.endpoint == 6 then v4 = r.endpoint else v6 = r.endpoint end
  r.v4, r.v6 = v4, v6
  if r.event == 'q' then return reply(t, r, was_join(r, p) and 'join' or 'stranger') end
  if not (r.may_join or p.active and p.mine) then return refuse('may not join') end
  if p.active and not p.mine then return reply(t, r, leaves and 'absent' or 'stranger') end
  if leaves then
    if p.active then stop(t, r, p, r.user and load_credited_account(r, tid)) end
    return reply(t, r, p.active and 'leave' or 'absent')
  end

  local old4, old6 = split_families(p.active and p.endpoints or '')
  local old = #r.endpoint == 6 and old4 or old6
  if is_beyond(t, r, old) then return reply(t, r, 'over') end
  if not p.active and has_max_downloads(r, tid) then return refuse('too many downloads') end
  if not p.active or not registered then
    local refusal
    tid, refusal = admit(t, r, registered and tid)
    if refusal then return refuse(refusal) end
    r.suffix = tid .. ':' .. r.pidx
    p.at = P .. 'p:' .. r.suffix
  end
  local outcome, a = prepare(t, r, p, tid, old)
  if outcome then return reply(t, r, outcome) end
  apply(t, r, p, a)
  if not p.active then
    local answer = reply(t, r, 'join')
    return a and with_multipliers(t, r, a, answer) or answer
  end
  return reply(t, r, p.elapsed < early and p.elapsed >= 0 and 'early' or 'update')
end

local function announce_other(packed, registered, denied)
  local r = read_request(packed)
  local uid, refusal, unknown_or_reason, user = authorize(r.passkey, r.left, r.event)
  if r.event == 'x' and (refusal == 'unknown passkey' or unknown_or_reason == true) then
    local own, _, _, row = authorize_stop(r)
    if own then uid, refusal, unknown_or_reason, user = own, nil, nil, row end
  end
  r.uid, r.user = uid, user
  if refusal then return refuse(refusal, unknown_or_reason) end
  local answer = announce_of(r, registered, denied)
  return unknown_or_reason and { 2, answer } or answer
end
