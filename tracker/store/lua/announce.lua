#!lua
-- announce.lua: applies a batch of announces, each wholly or not at all, and picks peers for them.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] '1': memory may grow; '0': the store is full, joins are refused
-- ARGV[3]   the rules, packed (struct, little-endian, eleven doubles): peer memory (s; 0: a peer's hash dies with it), hnr minimum
--   (bytes), hnr threshold (s), longest gap that counts as time on a torrent (s), shortest timeout that an announce may have (s), most
--   credit (bytes per second), 1 when a passkey is required (private mode), 1 when unknown torrents register (open mode), most
--   torrents and new torrents per address and hour (open mode), seconds within which a peer that announces again is early
-- ARGV[4..] one announce each, packed (struct, little-endian): as strings of their own, fourteen for each announce, the
--   server's work of taking them in cost more than reading the swarm. In order: info hash and peer id as 40 hex digits each
--   (c40), event (B: the character u update, s started, c completed, x stopped, p paused), 1 when peer ids are wanted (B), peers
--   wanted (H), timeout (I4, ms), a random integer (I4); uploaded, downloaded, left (s; bytes as decimals, left empty when
--   unsaid); endpoint with its length before it (B; 6 or 18 bytes), peer id (c20); with a length before each (B): digest of
--   the client's key (8 bytes or none), passkey (or none)
-- Answer    for each announce, in order, one of
--   'outcome seeders leechers snatches peers'   outcome: u update, e early update, j join, l leave, s stranger; peers: packed IPv4 endpoints
--     with a capital letter where IPv6 peers or peer ids go with it: then the packed lengths (H, H, H) of peers, peers6 and ids
--     come first, and ids6 after those three
--   { 1, code, reason }   nothing was changed; reason only where an operator wrote one
--   and after the last one 'up4 down4 up6 down6', bytes by the family they announced over: what the peers of this batch say
--   they have moved since they last announced, no faster than the most credit; empty for nothing
local P, now, may_grow = KEYS[1], tonumber(ARGV[1]), ARGV[2] == '1'
local call, read, sub, find, max, min = redis.call, struct.unpack, string.sub, string.find, math.max, math.min
local memory, hnr_min, hnr_threshold, longest_gap, shortest_timeout, most_credit, private, open, most_torrents, most_per_hour, early =
  read('<ddddddddddd', ARGV[3])
private, open = private == 1, open == 1
-- The registrations of all torrents of the batch are read at once.
local argv, hashes, keys = ARGV, {}, { P .. 'gap', P .. 'heartbeat' }
for i = 4, #argv do
  local ih = sub(argv[i], 1, 40)
  hashes[i], keys[2 * i - 5], keys[2 * i - 4] = ih, P .. 'info_hash:' .. ih, P .. 'deny:' .. ih
end
local known = call('MGET', unpack(keys))
local gap, heartbeat = known[1], known[2]
--@ include gap.lua
--@ include picking.lua
--@ include figures.lua
--@ include renewing.lua

-- What the other announces need, and what is left to do after the last: made when the first of them comes. To make all
-- these functions costs as much as half an announce, and most batches of a few never need them.
local function others()
--@ include swarm.lua
--@ include users.lua
--@ include registering.lua
--@ include timeouts.lua
--@ include changing.lua
  local function finish()
    save_derived()
    pcall(save_due_entries)
    pcall(rank, joined)
  end
  return change_swarm, finish
end

local answers, change, finish = {}, nil, nil
for i = 4, #argv do
  local packed, registered, denied = argv[i], known[2 * i - 5], known[2 * i - 4]
  local ok, reply = false, nil
  if registered and not denied and not private then ok, reply = pcall(renew, packed, hashes[i], registered) end
  if not (ok and reply) then
    if not change then change, finish = others() end
    ok, reply = pcall(change, packed, registered, denied)
    if not ok then reply = { 1, 'error', type(reply) == 'table' and reply.err or tostring(reply) } end
  end
  answers[i - 3] = reply
end
if finish then finish() end
answers[#answers + 1] = moved and string.format('%.0f %.0f %.0f %.0f', unpack(moved)) or ''
return answers
