#!lua
-- announce.lua: applies a batch of announces, each wholly or not at all, and selects peers for them.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s, with fractions)   ARGV[2] '1': memory may grow; '0': the store is full, joins are refused
-- ARGV[3]   the rules, packed (struct, little-endian, 26 doubles, in this order). A regular announce needs six:
--   max gap between two announces that counts as time on a torrent (s)
--   max credit (bytes per second)
--   user accounts: 0 off, 1 optional (an announce with a known passkey has a user), 2 required (every announce has
--   one)
--   an announce is early if it comes sooner than this after the last one (s)
--   a reply with fewer peers gets peers that were found in the DHT (0: none does)
--   1 when torrents of unknown privacy take part in the DHT
--   The others:
--   peer memory (s; 0: a peer's hash is deleted with it)
--   the six of hit_and_run_rules.lua
--   min timeout of an announce (s)
--   1 in open mode (unknown torrents register themselves)
--   max torrents; max new torrents per hour of an address, and of a network (open mode)
--   max credit of one user (bytes per second), and how long unused credit accumulates (s)
--   max endpoints of one network (IPv4 address or /64) in a swarm, and in all swarms
--   1 when these limits hold for local networks too
--   changes that the change feed keeps, about (0: none are recorded)
--   max peers of a user in a torrent, and max torrents that a user downloads at once (0: no limit)
-- ARGV[4..] one announce each, packed (struct, little-endian). Fifteen separate strings would cost the server more than
--   reading the swarm. In this order:
--   info hash and peer id as 40 hex digits each (c40)
--   event (B), a character: u update, s started, c completed, C completed of a peer that may not join, x stopped,
--     p paused, q was an earlier announce a join? (the random integer is then the time of that announce)
--   1 when peer ids are wanted, 2 over UDP: peers of the own family only (B), peers wanted (H), timeout (I4, ms), a
--     random integer (I4)
--   uploaded, downloaded, left (s; bytes as decimals, left empty when not sent)
--   endpoint with its length before it (B; 6 or 18 bytes), peer id (c20)
--   with a length before each (B): digest of the client's key (8 bytes or none), passkey (or none)
--   1 when the network may have any number of endpoints (B)
-- Answer    for each announce, in order, one of
--   'outcome seeders leechers snatches peers'
--     outcome: u update, e early update, j join, l leave; r and f: an update and an early update that the caller counts
--       for the torrent (count_announces.lua). Nothing changed for
--       a absent (a stop of a peer that is not in the swarm)
--       s stranger (the peer id belongs to another client)
--       d displaced (another peer holds the endpoint)
--       o over (too many endpoints of the network)
--     peers: packed IPv4 endpoints. A capital letter when IPv6 peers or peer ids follow: then the packed lengths
--       (H, H, H) of peers, peers6 and ids come first, and ids6 follows those three
--   { 1, code, reason }   nothing changed; reason only if an operator wrote one
--   { 2, one of the above }   the same, of an anonymous announce with an unknown passkey (optional accounts)
--   { 3, a join as above, upload, download }   the multipliers that apply to the user's traffic on the torrent
--   after the last one 'up4 down4 up6 down6': the bytes that the peers of this batch that announced over HTTP
--   transferred since their last announces, by the family of the announce, capped at the max credit rate. Then three
--   numbers: of torrents removed to make room, of refused new torrents, and of peers of the DHT in the replies. Then
--   the same four as at first, of announces over UDP. Groups of zeros at the end are left out
local P, moment, may_grow = KEYS[1], tonumber(ARGV[1]), ARGV[2] == '1'
local now = math.floor(moment)
local call, read, sub, find, max, min = redis.call, struct.unpack, string.sub, string.find, math.max, math.min
local max_gap, max_credit, mode, early, give_below, give_all, next_rule = read('<dddddd', ARGV[3])
local accounts, required = mode > 0, mode == 2
give_all = give_all == 1
local forgotten, refused, given = 0, 0, 0
-- One command reads the registrations of all torrents of the batch.
local argv, batch_keys = ARGV, { P .. 'gap', P .. 'heartbeat', P .. 'addresses:full' }
for i = 4, #argv do
  local ih = sub(argv[i], 1, 40)
  batch_keys[2 * i - 4], batch_keys[2 * i - 3] = P .. 'info_hash:' .. ih, P .. 'deny:' .. ih
end
if accounts then
  local n = #batch_keys
  batch_keys[n + 1], batch_keys[n + 2] = P .. 'upload_multiplier', P .. 'download_multiplier'
end
local batch_values = call('MGET', unpack(batch_keys))
--@ include lib/outage.lua
local outage_from, outage_until, steady, clock_back = last_outage(batch_values[1], batch_values[2])

-- How many seconds of [from, now) belong to the last outage.
local function time_away(from)
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
--@ include lib/max_exact.lua
--@ include lib/peer_selection.lua
--@ include lib/traffic.lua
--@ include lib/announce_regular.lua

-- An announce with a user is not a regular one, because its passkey is looked up. With optional accounts neither is an
-- announce without a passkey for the peer id of a user's peer.
local regular = not accounts and announce_regular
if accounts and not required then
  regular = function(packed, ih, tid)
    if string.byte(packed, -2) ~= 0 then return end
    if call('HGET', P .. 'p:' .. tid .. ':' .. sub(packed, 41, 80), 'user_id') then return end
    return announce_regular(packed, ih, tid)
  end
end

-- The functions for all other announces, created for the first such announce of a batch. Creating them costs half an
-- announce, and most small batches never need them. Nor do they need the other rules: every call pays for each local
-- that functions of this chunk refer to. A function has at most 200 locals, so there are two.
local function other_announces()
  local memory, hnr_min, hnr_threshold, hnr_by_seed, hnr_share, hnr_ratio, hnr_grace, min_timeout, open, max_torrents,
    max_per_address, max_per_network, max_user_credit, max_saved, max_in_swarm, max_in_all, bound_local, max_changes,
    max_peers, max_downloads = read('<dddddddddddddddddddd', ARGV[3], next_rule)
  local full = batch_values[3]
  open, bound_local = open == 1, bound_local == 1
  local function functions()
    local COUNTER_MAX = '9007199254740991'
    local joined = {}
--@ include lib/numbers.lua
--@ include lib/counters.lua
--@ include lib/ids.lua
--@ include lib/torrent.lua
--@ include lib/torrent_save.lua
--@ include lib/array_insert.lua
--@ include lib/array_remove.lua
--@ include lib/peers.lua
--@ include lib/addresses.lua
--@ include lib/addresses_claim.lua
--@ include lib/leave_swarm.lua
--@ include lib/endpoint_limits.lua
--@ include lib/changes.lua
--@ include lib/changes_removal.lua
--@ include lib/hit_and_runs.lua
--@ include lib/hit_and_run_check.lua
--@ include lib/accounts.lua
--@ include lib/endpoint_takeover.lua
--@ include lib/own_peers.lua
--@ include lib/downloads.lua
--@ include lib/account_time.lua
--@ include lib/multipliers.lua
--@ include lib/credit.lua
--@ include lib/completions.lua
--@ include lib/torrent_ids.lua
--@ include lib/torrent_rankings.lua
--@ include lib/info_hash_index.lua
--@ include lib/registration.lua
--@ include lib/new_torrents.lua
--@ include lib/due_lists.lua
--@ include lib/announce_request.lua
--@ include lib/announce_peer.lua
--@ include lib/announce_join.lua
--@ include lib/announce_apply.lua
--@ include lib/announce_other.lua
    local function finish()
      save_rankings()
      pcall(save_network_counts, note_full)
      pcall(save_full)
      pcall(save_due_entries)
      pcall(add_to_scoring, joined)
    end
    return announce_other, finish
  end
  return functions()
end

local answers, other, finish = {}, nil, nil
for i = 4, #argv do
  local packed, registered, denied = argv[i], batch_values[2 * i - 4], batch_values[2 * i - 3]
  local ok, reply = false, nil
  if registered and not denied and regular then
    ok, reply = pcall(regular, packed, sub(packed, 1, 40), registered)
  end
  if not (ok and reply) then
    if not other then other, finish = other_announces() end
    ok, reply = pcall(other, packed, registered, denied)
    if not ok then reply = { 1, 'error', type(reply) == 'table' and reply.err or tostring(reply) } end
  end
  answers[i - 3] = reply
end
if finish then finish() end
local totals, is_rare = '', forgotten + refused + given > 0
if traffic or udp_traffic or is_rare then
  local function shown(sums) -- a batch with one family is common, and zeros are slow to format
    if not sums then return '0 0 0 0' end
    if sums[3] + sums[4] == 0 then return string.format('%.0f %.0f 0 0', sums[1], sums[2]) end
    return string.format('%.0f %.0f %.0f %.0f', unpack(sums))
  end
  local events = is_rare and ' ' .. forgotten .. ' ' .. refused .. ' ' .. given or ' 0 0 0'
  totals = shown(traffic)
  if udp_traffic then
    totals = totals .. events .. ' ' .. shown(udp_traffic)
  elseif is_rare then
    totals = totals .. events
  end
end
answers[#answers + 1] = totals
return answers
