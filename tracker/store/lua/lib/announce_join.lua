-- announce_join.lua: a peer joins a swarm, and a torrent registers itself. A fragment of announce.lua, after
-- announce_peer.lua, endpoint_takeover.lua, own_peers.lua, array_insert.lua, registration.lua and new_torrents.lua.

-- A failed command does not undo those before it, so keys of a wrong type have to fail before the first write. The
-- torrent, the peer and the account are loaded before this, which checks their keys. The user's sets are checked here,
-- because only joins depend on them.
local function check_account(r)
  if r.uid == '' then return end
  for _, set in ipairs({ ':active', ':complete', ':incomplete', ':hnr' }) do
    call('SCARD', P .. 'u:' .. r.uid .. set)
  end
  r.known_passkey = call('HGET', P .. 'u:' .. r.uid, 'passkey')
end

local function check_all(t, r)
  check_rankings()
  call('SCARD', P .. 'tpeers:' .. t.ih)
  call('SCARD', P .. 'p:' .. r.pidx .. ':torrents')
  check_arrays(t, r)
end

-- Adopts a user whom a site wrote, at the first join. Returns nil, or the reason for a refusal.
local function adopt_user(r)
--@ include lib/user_ids.lua
--@ include lib/user_id_check.lua
--@ include lib/adoption.lua
  return adopt(r.uid, r.passkey)
end

-- The info hash of a torrent id. Most joins are `started` announces, so one command reads the info hashes for all of
-- these in the batch, as they were before the batch. After a torrent is bound to an id, each is read when it is needed.
local STARTED = 115 -- 's'
local info_hashes
local function info_hash_of(tid)
  if not info_hashes then
    local tids, names = {}, {}
    info_hashes = {}
    for i = 4, #ARGV do
      local registered = batch_values[2 * i - 3]
      if registered and string.byte(ARGV[i], 81) == STARTED then
        tids[#tids + 1], names[#names + 1] = registered, P .. 'torrent_id:' .. registered
      end
    end
    if #tids > 1 then
      for i, ih in ipairs(call('MGET', unpack(names))) do info_hashes[tids[i]] = ih end
    end
  end
  local ih = info_hashes[tid]
  if ih == nil then return call('GET', P .. 'torrent_id:' .. tid) end
  return ih
end

-- Checks whether the peer may join, and registers the torrent if that is needed. Returns the torrent's id, or nil and
-- the reason for a refusal. A refusal writes nothing.
local function admit(t, r, registered)
  if not may_grow then return nil, 'store full' end
  check_account(r)
  local refusal = r.uid ~= '' and r.known_passkey ~= r.passkey and adopt_user(r)
  if refusal then return nil, refusal end
  if registered and registered == t.tid and info_hash_of(registered) == t.ih then return registered end
  check_all(t, r)
  if registered and not (#registered <= 15 and string.find(registered, '^[1-9]%d*$')) then
    return nil, 'bad torrent id'
  end
  if registered and is_id_taken(t, registered) then return nil, 'torrent id in use' end
  if not registered then
    registered, refusal = register_itself(t, r.endpoint)
    if not registered then return nil, refusal end
  end
  local old = t.tid
  if bind_id(t, registered) then drop_rank(old) end
  info_hashes = {}
  return registered
end

-- Adds the peer to the arrays of its kind. Returns the hash fields that hold its slots.
local function insert_peer(t, r)
  local n4 = r.v4 ~= '' and insert_slot(t, r.kind, '4', r.v4, r.pid, r.random)
  local n6 = r.v6 ~= '' and insert_slot(t, r.kind, '6', r.v6, r.pid, r.random)
  if not n6 then return 'n4', n4 end
  if not n4 then return 'n6', n6 end
  return 'n4', n4, 'n6', n6
end

-- Does the steps of a join that can fail; a failure changes nothing. Returns the outcome if the peer does not join.
local function start_join(t, r, a)
  if not t.crowded and t.seeders + t.leechers == 0 then t.crowded = 0 end
  local own = a and max_peers > 0 and load_own_peers(t, r, a)
  local outcome = take_endpoint(t, r, '')
  if outcome then return outcome end
  local members, torrents = P .. 'tpeers:' .. t.ih, P .. 'p:' .. r.pidx .. ':torrents'
  local ok, failure = pcall(function()
    call('SADD', members, r.pidx)
    call('SADD', torrents, t.tid)
    r.evictions = evict(t, r)
    if own then
      local removed, stay = remove_surplus(t, r, own)
      r.evictions, a.peer_ids = r.evictions + removed, listed_peers(r, stay)
    end
    r.family, r.slot = insert_peer(t, r) -- a peer joins with one endpoint
  end)
  if ok then return end
  redis.pcall('SREM', members, r.pidx)
  redis.pcall('SREM', torrents, t.tid)
  remove_addresses(t, r.endpoint, r.pid)
  error(failure)
end

local peer_fields, field_count = {}, 0
local function add_field(field, value)
  peer_fields[field_count + 1], peer_fields[field_count + 2], field_count = field, value, field_count + 2
end

-- Writes the hash of a peer that joins. A remembered peer keeps its totals. Fields that each announce reads come first;
-- a 0 is left out.
local function write_join(r, p)
  field_count = 0
  add_field('endpoints', r.v4 .. r.v6)
  add_field('left', r.left)
  if p.known then
    call('PERSIST', p.at)
  else
    if p.stored[1] or p.stored[5] or p.stored[9] then call('UNLINK', p.at) end -- another program wrote it
    p.paused = '0'
  end
  if p.known or r.uploaded ~= '0' then add_field('uploaded', r.uploaded) end
  if p.known or r.downloaded ~= '0' then add_field('downloaded', r.downloaded) end
  add_field('last_announce', now)
  if p.known then
    add_field('rejoined', now)
    add_field('total_time', p.total_time)
    add_field('speed_up', speed(p.up, p.elapsed))
    add_field('speed_dn', speed(p.down, p.elapsed))
    add_field('udp', r.own_family and '1' or '0')
  else
    add_field('first_announce', now)
    if r.own_family then add_field('udp', '1') end
  end
  add_field('active', '1')
  add_field(r.family, r.slot)
  if p.paused ~= r.paused then add_field('paused', r.paused) end
  if r.uid ~= '' then
    add_field('user_id', r.uid)
  elseif p.known then -- its user left before accounts were switched off
    call('HDEL', p.at, 'user_id')
  end
  if r.digest ~= '' then add_field('key', r.digest) end
  if r.announced then add_field('peer_id', r.announced) end
  call('HSET', p.at, unpack(peer_fields, 1, field_count))
end

local function finish_join(t, r, p)
  joined[#joined + 1] = t.tid
  if t.seeders + t.leechers == 0 then redis.pcall('ZREM', P .. 'i:empty', t.tid) end
  write_join(r, p)
  if r.announced then call('HSET', t.key, 'derived', '1') end
  count_peer(t, r.kind, r.paused == '1', 1)
  save_torrent(t)
  save_sole_address(t)
end
