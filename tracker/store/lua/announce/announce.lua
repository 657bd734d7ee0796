#!lua
-- announce.lua: applies a batch of announces, each wholly or not at all, and selects peers for them.
--
-- An announce goes through steps, one file each in this folder, which say what they read and write:
--   read.lua       the announce, its torrent and its peer
--   refuse.lua     may user and torrent take it?
--   update.lua     a peer that is in the swarm; first of all the regular announce, nine of ten
--   join.lua       a peer that is not; endpoints.lua: who has an endpoint
--   leave.lua      a peer that stops
--   credit.lua     what a user gets for it; v2_half.lua: for one of the v2 half of a hybrid torrent
--   own_peers.lua  which peers the user has on the torrent
--   reply.lua      the peers for the answer
-- Every step reads what may fail before anything is written: a key of a wrong type fails its announce, and nothing
-- else. What is written for several announces at once is written last, by finish().
--
-- The tables: t is the torrent, r the announce, p its peer, a the account of the user on the torrent; P is the prefix
-- of the keys. A server that has Redis functions keeps the functions of this file between calls, so begin() sets all
-- that belongs to one call.
-- ARGV[1]   now (epoch s, with fractions)   ARGV[2] '1' and '2': memory may grow; '0' and '3': the store is full, joins
--   are refused. '2' and '3': the main prefix was asked for users without a copy in this shard; else 'no copy'
-- ARGV[3]   the rules, packed (struct, little-endian, 31 doubles, in this order). A regular announce needs six:
--   max gap between two announces that counts as time on a torrent (s); max credit (bytes per second)
--   user accounts: 0 off, 1 optional (an announce with a known passkey has a user), 2 required (every one has)
--   an announce is early if it comes sooner than this after the last one (s)
--   a reply with fewer peers gets peers that were found in the DHT (0: none does)
--   1 when torrents of unknown privacy take part in the DHT
--   The others:
--   peer memory (s; 0: a peer's hash is deleted with it)
--   the six of hit_and_run_rules.lua
--   min timeout of an announce (s)
--   1 in open mode (unknown torrents register themselves)
--   max credit of one user (bytes per second), and how long unused credit accumulates (s)
--   max endpoints of one network (IPv4 address or /64) in a swarm, and in all swarms
--   1 when these limits hold for local networks too
--   changes that the change feed keeps, about (0: none are recorded)
--   max peers of a user in a torrent, and max torrents that a user downloads at once (0: no limit)
--   1 when a download beyond that is answered without peers instead of being refused
--   1 when a user's own peers may be in replies to the user
--   min seconds between two credited announces of a user's peer (0: every announce is credited)
--   joins and early announces of a user that are answered with peers: at once, per minute, per day (0: no limit), and
--   the seconds after which the next announce of a peer is not early
--   1 when peers that announce are noted for `updated` in the change feed
--   After these doubles: ports of peers that are not in replies, two bytes each, big-endian, up to the end
-- ARGV[4..] one announce each, packed (struct, little-endian). Fifteen separate strings would cost the server more than
--   reading the swarm. In this order:
--   info hash and peer id as 40 hex digits each (c40)
--   event (B), a character: u update, s started, c completed, C completed of a peer that may not join, x stopped,
--     p paused, g its WebSocket was closed,
--     q was an earlier announce a join? (the random integer is then the time of that announce); of an announce that a
--     user made on the v2 half of this torrent: 1 u, 2 s, 3 c, 4 x, 5 p
--   1 when peer ids are wanted, 2 over UDP: peers of the own family only, 3 over a WebSocket: others only (B), peers
--     wanted (H), timeout (I4, ms), a random integer (I4)
--   uploaded, downloaded, left (s; bytes as decimals, left empty when not sent)
--   with a length before each (B): endpoint (6 or 18 bytes; 25 of a WebSocket: addresses.lua), passkey (or none)
--   peer id (c20); the client's key, or none, with its length before it (B)
--   1 when the network may have any number of endpoints (B); then the client's user agent, if it is kept, to the end
-- Answer    for each announce, in order, one of
--   'outcome seeders leechers snatches peers'
--     outcome: u update, e early update, j join, l leave. The caller counts these for the torrent
--       (count_announces.lua). Nothing changed for
--       a absent (a stop of a peer that is not in the swarm), s stranger (the peer id belongs to another client)
--       d displaced (another peer holds the endpoint), o over (too many endpoints of the network)
--     peers: packed IPv4 endpoints, or WebSockets. A capital letter when IPv6 peers or peer ids follow: then the
--       packed lengths (H, H, H) of peers, peers6 and ids come first, and ids6 follows those three
--   { 1, code, reason }   nothing changed; reason only if an operator wrote one. 'no copy': see ARGV[2]
--   { 2, one of the above }   the same, of an anonymous announce with an unknown passkey (optional accounts)
--   { 3, a join as above, upload, download }   the multipliers that apply to the user's traffic on the torrent
--   { 4, an answer as above without peers }   the user has no budget for one with peers
--   { 5, 'a seeders leechers snatches ' }   nothing changed: the user downloads as many torrents as allowed
--   { 6 }   nothing changed: the announce is to be sent again after register.lua has run
--   { 7, one of the above, info hash }   the announce was of a v2 half: that v1 half has to get it as well
--   After the last one 'up4 down4 up6 down6': the bytes that the peers of this batch that announced over HTTP
--   transferred since their last announces, by the family of the announce, capped at the max credit rate. Then two
--   numbers: of peers of the DHT in the replies, and of announces answered by 6, 7 or 'no copy'. Then the same four as
--   at first, of announces over UDP, then over WebSockets. Groups of zeros at the end are left out.
--   Then, after a line end, the user's id for each announce that counts for its user, with a space between two: the
--   caller counts these
-- To read a global costs five times as much as to read a local.
local redis, string, math, tonumber, unpack, pcall = redis, string, math, tonumber, unpack, pcall
local read, max, min, floor = struct.unpack, math.max, math.min, math.floor
local sub, find, match, byte, format = string.sub, string.find, string.match, string.byte, string.format
local UPDATE = 117 -- 'u', the event of regular announces

-- The call: its time, rules, announces, and what one command has read for all of them.
local P, call, now, moment, may_grow, batch_values, info_hashes, registered_at, secret
local settle_from -- a regular announce may clear a hit-and-run from so many seconds on (0 in a shard)
local users_prefix, passkeys_prefix -- of the keys of a regular announce's user: to join fewer parts is faster
local outage_from, outage_until, steady, clock_back, full, removing
local user_group -- of the user whose row was read last; nil for none
-- The rules, as ARGV[3] has them; those that few announces need are fields of `rules`: to read a field costs more than
-- to read a local.
local rules, accounts, early, regular_after, max_gap, give_below, notes_updates, memory
local hnr_min, hnr_threshold, hnr_by_seed, hnr_share, hnr_ratio, hnr_grace, min_timeout, max_changes
local field_lists -- the fields that announces read under these rules
-- The rows of torrents that regular announces of the call have read, by info hash. Only other announces change them.
local torrents_read
-- What the announces of the call add up to: for the answer, and for finish(). And `asks`: whether 'no copy' may be one.
local sums -- 0, 2, 3: traffic over HTTP, UDP, WebSockets; given, again, incomplete, joined, newly_full, full_before

--@ include lib/outage.lua
-- How many seconds of [from, now) belong to the last outage.
local function time_out_of_service(from)
  if from >= outage_until then return 0 end
  return max(0, min(now, outage_until) - max(from, outage_from))
end

-- The seconds since an announce, from the difference of the clock, which is negative when the clock was set back
-- meanwhile. A peer that announced on a clock that was wrong between two heartbeats did so less than a minute ago.
local function since_step_back(elapsed)
  if elapsed >= -CLOCK_SLACK then return elapsed end
  elapsed = elapsed + max(0, outage_from - outage_until)
  return elapsed > 0 and elapsed or OUTAGE
end

--@ include lib/numbers.lua
COUNTER_MAX, MAX_COUNT = '9007199254740991', MAX_EXACT
--@ include lib/torrent.lua
--@ include lib/addresses.lua
--@ include lib/swarm.lua
--@ include lib/changes.lua
--@ include lib/hit_and_runs.lua
--@ include lib/accounts.lua

-- Adds to the traffic of the batch by `form`; `up` or `down` is above 0. Comparisons instead of calls of min(), which
-- are several times slower.
local function add_traffic(up, down, elapsed, on_v4, form)
  local protocol, at, max_bytes = form > 1 and form or 0, on_v4 and 1 or 3, rules.max_credit
  local own = sums[protocol]
  if not own then
    own = { 0, 0, 0, 0 }
    sums[protocol] = own
  end
  if elapsed > 1 then max_bytes = max_bytes * elapsed end
  up = own[at] + (up < max_bytes and up or max_bytes)
  down = own[at + 1] + (down < max_bytes and down or max_bytes)
  own[at], own[at + 1] = up < MAX_EXACT and up or MAX_EXACT, down < MAX_EXACT and down or MAX_EXACT
end

-- The same for one announce. The v2 half of a hybrid torrent reports what the v1 half does.
local function count_traffic(r, p)
  if not r.moves_only then add_traffic(p.up, p.down, p.elapsed, r.on_v4 or sockets.on_v4(r.endpoint), r.form) end
end

-- A function has at most 200 names. Those that only one step uses are in a block of their own.
local read_request, digest_of, find_peer, was_join, has_derived, load_swarm
do
--@ include announce/read.lua
end
local use_groups, refuse, refuse_unregistered, authorize, authorize_stop, has_max_downloads, read_regular
local load_totals, write_total, save_user, take_list
do
--@ include announce/refuse.lua
end
local is_beyond, note_full, save_full, check_arrays, load_holder, without_entry, take_endpoint, drop_holder, evict
local insert_peer, remove_from_arrays, note_joiner
do
--@ include announce/endpoints.lua
end
local with_multipliers, forget_multipliers, record_announce, load_regular, credit_regular, save_changed
local settle_regular, plus, load_credited_account, credit_user, credit_announce, leave_others
local is_completion, count_snatch
do
--@ include lib/rules.lua
--@ include announce/own_peers.lua
--@ include announce/credit.lua
end
local select_family, add_peers, forget_barred
do
--@ include lib/barred_users.lua
--@ include lib/denied_clients.lua
--@ include announce/reply.lua
end
local speed, marks_of, update_regular, update, renew_timeout
do
--@ include announce/update.lua
end
local needs_registration, join, score_joined
do
--@ include announce/join.lua
end
local leave, leave_late
do
--@ include announce/leave.lua
end

local announce_other
do
local AGAIN = { 6 }

-- The announce, and those of its torrent that follow in this call, wait for register.lua.
local function again(r)
  sums.again[r.ih], sums.incomplete = true, sums.incomplete + 1
  return AGAIN
end

--@ include announce/v2_half.lua

-- The answer to an announce with this outcome, a letter, and its head, which is all of an answer without peers. `a` is
-- the account of the user, if it was loaded: a user without another peer in the swarm needs no look for own ones.
local function answer_to(t, r, outcome, with_peers, a)
  local text = text_of
  local head = outcome .. ' ' .. text[t.seeders] .. ' ' .. text[t.leechers] .. ' ' .. text[t.snatches] .. ' '
  if r.want == 0 or not with_peers then return head, head end
  local s4, s6, l4, l6 = 0, 0, t.l4, t.l6
  if r.kind ~= 's' and r.paused ~= '1' then s4, s6 = t.s4, t.s6 end
  local with_ids = r.form == 1
  if r.form == 2 then -- no peers of the other family
    if r.on_v4 then s6, l6 = 0, 0 else s4, l4 = 0, 0 end
  end
  local own = r.uid ~= '' and not rules.own_peers and not (a and a.peers <= 1) and r.uid or nil
  if r.on_socket then
    local seeding = r.kind == 's' or r.paused == '1'
    return sockets.reply(head, t.ih, seeding and 0 or t.sw, t.lw, r.want, r.random, r.endpoint, t.tid, own), head
  end
  local ok, answer = pcall(add_peers, head, t.ih, s4, s6, l4, l6, r.want, r.random, with_ids, r.on_v4,
    r.v4 ~= '' and r.v4, r.v6 ~= '' and r.v6,
    t.crowded, with_ids and has_derived(t.joiners) and t.tid, t.dht, t.tid, own)
  return ok and answer or head, head -- an array of a wrong type gives no peers: the announce is applied by now
end

-- The answer to a join, or to an announce of a user before it is due. Without budget it has no peers.
local function answer_within_budget(t, r, outcome, a, u)
  local answer, head = answer_to(t, r, outcome, true, a)
  if not rules.limits_lists or answer == head or take_list(u) then return answer end
  return { 4, head }
end

-- The answer to an announce that changes nothing. One of a user takes from the budget as well, as it is never due.
local function answer_unapplied(t, r, p, outcome, tid)
  local answer, head = answer_to(t, r, outcome, not r.on_socket)
  if answer == head or not (rules.limits_lists and r.uid ~= '') then return answer end
  local u = load_totals(r, p, tid, true)
  if not take_list(u) then return { 4, head } end
  save_user(u)
  return answer
end

-- The announce of a user counts for the user, but that of a v2 half: the v1 half has to get it.
local function note_user(r)
  if r.moves_only then r.follows = r.user else r.counts = r.user end
end

-- `registered` and `denied` are the values of the torrent's keys. A stop needs no permission: the peer has to be the
-- client's own.
local function announce_of(r, registered, denied)
  local leaves = r.event == 'x'
  if denied and not leaves then return refuse('denied', denied) end
  if not registered and not rules.open and not leaves then return refuse_unregistered(r) end
  local t, tid, enabled = load_swarm(r, registered)
  if (enabled == '0' or enabled == 'pending') and not leaves then
    return refuse(enabled == '0' and 'disabled' or 'pending', call('HGET', t.key, 'reason') or '')
  end

  if r.of_v2 then return announce_v2_half(t, r, registered and tid) end
  local p = find_peer(r, tid, t)
  if not (p.active or registered or rules.open) then return refuse('unknown torrent') end
  local event, active, mine, old = r.event, p.active, p.mine, ''
  if active then t.tid = tid end -- also when another program deleted the field
  if not leaves or r.gone or max_changes > 0 then
    r.paused, r.kind = event == 'p' and r.left ~= '0' and '1' or '0', r.left == '0' and 's' or 'l'
    r.v4, r.v6, r.w = '', '', ''
    if active then
      local old4, old6, socket = split_families(p.endpoints)
      old = r.on_v4 and old4 or r.on_socket and socket or old6
      if mine then r.v4, r.v6, r.w = old4, old6, socket end
    end
    if r.on_v4 then r.v4 = r.endpoint elseif r.on_socket then r.w = r.endpoint else r.v6 = r.endpoint end
  end
  if event == 'q' then return answer_to(t, r, was_join(r, p) and 'j' or 's', true) end
  if not (r.may_join or active and mine) then return refuse('may not join') end
  local is_user = r.uid ~= '' and r.user
  if leaves then
    if not (active and mine) then
      if is_user and p.known and not active and p.up + p.down > 0 then leave_late(t, r, p, tid) end
      return answer_to(t, r, 'a')
    end
    if r.gone and (old ~= r.endpoint or r.v4 .. r.v6 ~= '') then
      if old == r.endpoint then sockets.lose(t, r, p) end
      return answer_to(t, r, 'a')
    end
    leave(t, r, p, is_user and load_credited_account(r, load_totals(r, p, tid), tid, p))
    note_user(r)
    return answer_to(t, r, 'l')
  end
  if active and not mine then return answer_unapplied(t, r, p, 's', tid) end

  if full and is_beyond(t, r, old) then return answer_unapplied(t, r, p, 'o', tid) end
  local is_early = active and not r.on_socket and p.elapsed < early and p.elapsed >= 0
  if active and is_user and event == 'u' and p.elapsed >= 0 and p.elapsed < rules.shortest and p.kind == r.kind
      and p.paused == r.paused and p.endpoints == r.v4 .. r.v6 .. r.w then
    renew_timeout(t, r)
    return answer_to(t, r, 'e')
  end
  if not active and has_max_downloads(r, tid) then
    if not rules.warns_beyond then return refuse('too many downloads') end
    local _, head = answer_to(t, r, 'a', false)
    return { 5, head }
  end
  local is_due = active and (r.on_socket or p.elapsed < 0 or p.elapsed >= rules.list_wait)
  local needs_budget = rules.limits_lists and not is_due
  local u = is_user and load_totals(r, p, tid, needs_budget)
  if not (active and registered) then
    if not may_grow then return refuse('store full') end
    if needs_registration(t, r, registered and tid, u) then return again(r) end
  end
  local a = u and load_credited_account(r, u, tid, p)
  local outcome
  if active then outcome = update(t, r, p, a, old) else outcome = join(t, r, p, a) end
  if outcome then return answer_unapplied(t, r, p, outcome, tid) end
  outcome = active and (is_early and 'e' or 'u') or 'j'
  local answer = u and needs_budget and answer_within_budget(t, r, outcome, a, u)
    or answer_to(t, r, outcome, true, a)
  if u then save_user(u) end
  note_user(r)
  if not active and a and type(answer) == 'string' then return with_multipliers(t, r, a, answer) end
  return answer
end

-- The answer, and the id of the user for whom the announce counts, if it does.
function announce_other(packed, registered, denied)
  local r = read_request(packed)
  if sums.again[r.ih] then return again(r) end
  local uid, refusal, unknown_or_reason, user = authorize(r.passkey, r.left, r.event)
  if r.event == 'x' and (refusal == 'unknown passkey' or unknown_or_reason == true) then
    local own, _, _, row = authorize_stop(r)
    if own then uid, refusal, unknown_or_reason, user = own, nil, nil, row end
  end
  r.uid, r.user = uid, user or false
  if refusal then return refuse(refusal, unknown_or_reason) end
  local answer = announce_of(r, registered, denied)
  if answer == AGAIN then return answer end
  if r.follows then
    sums.incomplete = sums.incomplete + 1
    return { 7, answer, r.v1 }
  end
  return unknown_or_reason and { 2, answer } or answer, r.counts and r.uid
end
end

local begin
do
local packed_rules

-- Reads the rules, and which fields announces need under them.
local function set_rules(packed)
  local mode, all, open, local_too, warns_beyond, own_peers, notes, ports_at
  rules = {}
  max_gap, rules.max_credit, mode, early, give_below, all, memory, hnr_min, hnr_threshold, hnr_by_seed,
    hnr_share, hnr_ratio, hnr_grace, min_timeout, open, rules.max_user_credit, rules.max_saved, rules.max_in_swarm,
    rules.max_in_all, local_too, max_changes, rules.max_peers, rules.max_downloads, warns_beyond, own_peers,
    rules.shortest, rules.lists_at_once, rules.lists_per_minute, rules.lists_per_day, rules.list_wait, notes,
    ports_at =
    read('<' .. string.rep('d', 31), packed)
  rules.own_peers, rules.warns_beyond, notes_updates = own_peers == 1, warns_beyond == 1, notes == 1
  for at = ports_at, #packed - 1, 2 do
    rules.untold = rules.untold or {}
    rules.untold[sub(packed, at, at + 1)] = true
  end
  rules.limits_lists = rules.lists_at_once > 0 and rules.lists_per_minute > 0 or rules.lists_per_day > 0
  regular_after = max(rules.shortest, rules.limits_lists and rules.list_wait or 0)
  accounts, rules.required, rules.give_all = mode > 0, mode == 2, all == 1
  rules.open, rules.bound_local = open == 1, local_too == 1
  rules.limits_here, rules.max_listed = rules.max_credit < rules.max_user_credit, max(8, rules.max_peers)
  local dht = give_below > 0 and 'dht' or nil
  field_lists = {
    torrent_of_user =
      { 'snatches', 'enabled', 'joiners', 'multi_up', 'multi_dn', 'hybrid_of', dht },
    regular_torrent = { 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'arrays', dht },
    regular_torrent_of_user = { 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'arrays', 'hybrid_of', 'multi_up',
      'multi_dn', 'user_downloaded', dht },
    ruled_account = { 'peers', 'total_time', 'seed_time', 'uploaded', 'downloaded', 'unreported', 'extra_up',
      'extra_dn', rules.limits_here and 'credited' or nil },
    account = { 'peers', 'total_time', 'seed_time', 'uploaded', 'downloaded', 'unreported',
      rules.limits_here and 'credited' or nil },
  }
  packed_rules = packed
end

local gap, heartbeat, addresses_full, removing_key, secret_key, upload_multiplier, download_multiplier, groups

-- What depends on a prefix only. A node of a cluster has several, and nearly every call is for another one.
local names_of = {}

local function set_prefix(prefix)
  P = prefix
  local names = names_of[P]
  if not names then
    names = { string.find(P, ':{%d+%l+}:$') ~= nil, P .. 'u:', P .. 'user:', P .. 'gap', P .. 'heartbeat',
      P .. 'addresses:full', P .. 'removing', P .. 'secret', P .. 'upload_multiplier', P .. 'download_multiplier',
      P .. 'groups' }
    names_of[P] = names
  end
  sharded, users_prefix, passkeys_prefix, gap, heartbeat, addresses_full, removing_key, secret_key,
    upload_multiplier, download_multiplier, groups = unpack(names)
end

-- One command reads the registrations of all torrents of the batch.
function begin(prefix, arguments)
  if prefix ~= P then set_prefix(prefix) end
  call = redis.call
  moment, may_grow = tonumber(arguments[1]), arguments[2] == '1' or arguments[2] == '2'
  now = floor(moment)
  if arguments[3] ~= packed_rules then set_rules(arguments[3]) end
  settle_from = sharded and 0 or hnr_threshold
  sums = { given = 0, again = {}, incomplete = 0, joined = {}, newly_full = {}, asks = sharded and arguments[2] < '2' }
  network_changes, due_entries = {}, {}
  -- With room for those of one announce: to grow a table costs as much as a short command.
  local keys = { gap, heartbeat, addresses_full, removing_key, secret_key, nil, nil, nil, nil, nil }
  local hashes, at, n = {}, {}, 5
  for i = 4, #arguments do
    local ih = sub(arguments[i], 1, 40)
    hashes[i] = ih
    if not at[ih] then
      at[ih], keys[n + 1], keys[n + 2], n = n + 1, P .. 'info_hash:' .. ih, P .. 'deny:' .. ih, n + 2
    end
  end
  info_hashes, registered_at, torrents_read = hashes, at, {}
  if accounts then
    keys[n + 1], keys[n + 2], keys[n + 3] = upload_multiplier, download_multiplier, groups
  end
  batch_values = call('MGET', unpack(keys))
  full, removing, secret = batch_values[3], batch_values[4], batch_values[5] or ''
  sums.full_before = full
  if accounts then
    forget_multipliers(batch_values[n + 1], batch_values[n + 2])
    use_groups(batch_values[n + 3])
  end
  if removing then forget_barred() end
  outage_from, outage_until, steady, clock_back = last_outage(batch_values[1], batch_values[2])
end
end

local function finish()
  save_rankings()
  if next(network_changes) then pcall(save_network_counts, rules.max_in_all, note_full) end
  if sums.newly_full[1] or full ~= sums.full_before then pcall(save_full) end
  if next(due_entries) then pcall(save_due_entries) end
  if next(sums.joined) then pcall(score_joined) end
end

local totals
do
-- A batch with one family is common, and zeros are slow to format.
local function show_traffic(bytes)
  if not bytes then return '0 0 0 0' end
  if bytes[3] + bytes[4] == 0 then return format('%.0f %.0f 0 0', bytes[1], bytes[2]) end
  return format('%.0f %.0f %.0f %.0f', unpack(bytes))
end

function totals()
  local is_rare = sums[2] or sums[3] or sums.given + sums.incomplete > 0
  if not (sums[0] or is_rare) then return '' end
  local text = show_traffic(sums[0])
  if not is_rare then return text end
  text = text .. ' ' .. sums.given .. ' ' .. sums.incomplete .. ' ' .. show_traffic(sums[2])
  return sums[3] and text .. ' ' .. show_traffic(sums[3]) or text
end
end

local counted = {} -- the ids of users; kept between calls, as a table that grows is slow

local function announce(keys, arguments)
  begin(keys[1], arguments)
  local replies, others, values, n = {}, false, batch_values, 0
  for i = 4, #arguments do
    local packed, ih, ok, reply, uid = arguments[i], info_hashes[i], false, nil, nil
    local at = registered_at[ih]
    local registered, denied = values[at], values[at + 1]
    if registered and not denied and byte(packed, 81) == UPDATE then
      ok, reply, uid = pcall(update_regular, packed, ih, registered)
    end
    if not (ok and reply) then
      others, torrents_read[ih] = true, nil
      ok, reply, uid = pcall(announce_other, packed, registered, denied)
      if not ok then reply = { 1, 'error', type(reply) == 'table' and reply.err or tostring(reply) } end
    end
    replies[i - 3] = reply
    if uid then n, counted[n + 1] = n + 1, uid end
  end
  if others then finish() end
  local sum = totals()
  if n > 0 then sum = sum .. '\n' .. (n > 1 and table.concat(counted, ' ', 1, n) or counted[1]) end
  replies[#replies + 1] = sum
  return replies
end

return announce(KEYS, ARGV)
