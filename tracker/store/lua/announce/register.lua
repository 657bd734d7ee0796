#!lua
-- register.lua: registers what announces need and the store does not know yet: torrents that register themselves (open
-- mode), torrent ids and users that a site wrote. announce.lua answers such announces with { 6 }, and is called again.
-- ARGV[1]   now (epoch s)   ARGV[2] 1: announces have users
-- ARGV[3]   open mode: max torrents; 0: torrents do not register themselves
-- ARGV[4], ARGV[5] max new torrents per hour of an address, and of a network
-- ARGV[6..] the announces, packed as for announce.lua
-- Answer    { torrents removed to make room, refused new torrents, for each announce false or its refusal: { code,
--   reason } as of announce.lua }
local P, call, now = KEYS[1], redis.call, math.floor(tonumber(ARGV[1]))
local max_torrents, max_per_address, max_per_network = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local byte, format = string.byte, string.format
local STOP = 120 -- 'x'; it needs nothing, and waits for the announces before it
-- What this call has done, by torrent id, by info hash, and by torrent id.
local is_new, is_ready, is_tried, forgotten, refused = {}, {}, {}, 0, 0
--@ include lib/numbers.lua
--@ include lib/torrent.lua
--@ include lib/addresses.lua
--@ include lib/registration.lua
--@ include lib/names.lua
--@ include lib/torrent_deletion.lua
--@ include lib/user_ids.lua

local EMPTY_CANDIDATES = 4 -- empty torrents that are tried for one new torrent
-- Torrents of a full register whose networks are looked at, and how often in a call. A sample serves many new torrents.
local SAMPLE, MAX_SAMPLES = 100, 4
local LARGE_SHARE = 0.1 -- a network with a larger part of them loses its own torrents first
local FEW_PEERS = 2 -- also those that have so many peers
-- Torrents that only WebSockets ever joined may be rooms of an application. They count as those of one network, and up
-- to a tenth of the register does not count for the maximum. So they never take the place of others.
local ROOMS = 'rooms'

-- An IPv4 address, or the /64 of an IPv6 address, and its /24 or /48, as text.
local function address_texts(endpoint)
  local own = sockets.address(endpoint)
  if #own == 4 then
    local a, b, c, d = byte(own, 1, 4)
    return format('%d.%d.%d.%d', a, b, c, d), format('%d.%d.%d.0/24', a, b, c)
  end
  return format('%02x%02x:%02x%02x:%02x%02x:%02x%02x::', byte(own, 1, 8)),
    format('%02x%02x:%02x%02x:%02x%02x::/48', byte(own, 1, 6))
end

local function registrations_of(key)
  return tonumber(call('GET', key) or '') or 0
end

local function count_registration(key)
  if redis.pcall('INCR', key) == 1 then call('EXPIRE', key, 3600) end
end

local function is_replaceable(auto, enabled)
  return auto == '1' and enabled ~= '0' and enabled ~= 'pending'
end

-- Random torrents of the register, those that are empty or were added longest ago first, and how many of them each
-- network added. All new torrents of the call share them.
local sample, number_of, sample_size, samples, is_used = nil, nil, 0, 0, false
local function draw_sample()
  local tids = call('ZRANDMEMBER', P .. 'i:seeders', SAMPLE)
  sample, number_of, sample_size, samples, is_used = {}, {}, #tids, samples + 1, false
  for _, tid in ipairs(tids) do
    local ih = call('GET', P .. 'torrent_id:' .. tid) or ''
    local v = redis.pcall('HMGET', P .. 't:' .. ih, 'by', 'seeders', 'leechers', 'empty_since', 'added', 'auto',
      'enabled', 'joiners')
    local by = v[1] and (string.find(v[8] or '', 'W', 1, true) and ROOMS or v[1])
    if by then
      number_of[by] = (number_of[by] or 0) + 1
      local peers = (tonumber(v[2]) or 0) + (tonumber(v[3]) or 0)
      sample[#sample + 1] = { tid = tid, ih = ih, by = by, peers = peers, stays = not is_replaceable(v[6], v[7]),
        since = tonumber(v[peers == 0 and 4 or 5] or '') or 0 }
    end
  end
  table.sort(sample, function(one, other) return one.since < other.since end)
end

local function is_large(by)
  return (number_of[by] or 0) > LARGE_SHARE * sample_size
end

-- Those of the sample that networks with a large share of the register added, in two lists: the ids of empty ones, and
-- those with few peers. If `network` has such a share itself, only its empty ones; then the third value is true.
local function of_large(network)
  local empty, few, own = {}, {}, is_large(network)
  for _, one in ipairs(sample) do
    if not is_new[one.tid] and not is_tried[one.tid]
        and (own and one.by == network or not own and is_large(one.by)) then
      if one.peers == 0 then
        empty[#empty + 1] = one.tid
      elseif not own and not one.stays and one.peers <= FEW_PEERS then
        few[#few + 1] = one
      end
    end
  end
  if #empty + #few == 0 and is_used and samples < MAX_SAMPLES then
    draw_sample()
    return of_large(network)
  end
  return empty, few, own
end

-- Unregisters the first of these torrents that still is registered. Its peers are removed within seconds, and it is
-- deleted as an empty one then. Until then there is one torrent too many.
local function unregister_one(found)
  for _, one in ipairs(found) do
    is_tried[one.tid], is_used = true, true
    if call('DEL', P .. 'info_hash:' .. one.ih) == 1 then
      redis.pcall('SADD', P .. 'removing:torrents', one.ih)
      return true
    end
  end
  return false
end

-- Deletes the torrent that has been empty longest, and further ones while there are too many; without an empty one,
-- one with few peers of a network with a large share. Returns true when there is room for one torrent. A torrent that
-- was seen in many places takes several calls; each frees more than a new torrent needs. A torrent that cannot be
-- deleted leaves `i:empty`; the sweep adds it again if it belongs there.
local function make_room(own, network)
  -- Returns whether the torrent can be deleted, and whether all of it is deleted.
  local function try_delete(tid)
    local ih = call('GET', P .. 'torrent_id:' .. tid)
    if ih == own then return false, true end
    local old, auto, enabled
    if ih then old, auto, enabled = load_torrent(ih, 'auto', 'enabled') end
    if not old or old.tid ~= tid or is_new[tid] or not is_replaceable(auto, enabled)
        or old.seeders + old.leechers > 0 or call('SCARD', P .. 'tpeers:' .. ih) > 0 then
      error('in use')
    end
    if not delete_torrent(old) then return true, false end
    forgotten = forgotten + 1
    return true, true
  end

  if not sample then draw_sample() end
  local counted = 1 - math.min((number_of[ROOMS] or 0) / sample_size, LARGE_SHARE)
  local function is_full() return call('ZCARD', P .. 'i:seeders') * counted >= max_torrents end
  if network == ROOMS and not is_large(ROOMS) or not is_full() then return true end
  local room, empty, few, own_only = false, of_large(network)
  is_used = is_used or #empty > 0
  if #empty == 0 and not own_only then empty = call('ZRANGE', P .. 'i:empty', 0, EMPTY_CANDIDATES - 1) end
  for i, tid in ipairs(empty) do
    if i > EMPTY_CANDIDATES then break end
    local ok, done, whole_torrent = pcall(try_delete, tid)
    if not ok then call('ZREM', P .. 'i:empty', tid) end
    is_tried[tid] = not ok or done and whole_torrent
    room = room or ok and done
    if ok and not whole_torrent or not is_full() then break end
  end
  return room or unregister_one(few)
end

-- Registers a torrent at the first announce of it, by its endpoint. Returns its id, or nil and the reason of a refusal.
local function register_itself(new, endpoint)
  local address, network = address_texts(endpoint)
  local over_socket = #endpoint == sockets.BYTES
  local by_address, by_network = P .. 'registered_by:' .. address, P .. 'registered_by:' .. network
  local refusal = registrations_of(by_address) >= max_per_address and 'too many new torrents'
    or registrations_of(by_network) >= max_per_network and 'too many new torrents from network'
    or call('ZCARD', P .. 'i:seeders') >= max_torrents and not make_room(new.ih, over_socket and ROOMS or network)
      and 'too many torrents'
  if refusal then
    refused = refused + 1
    return nil, refusal
  end
  count_registration(by_address)
  count_registration(by_network)
  local fields = { 'auto', '1', 'by', network }
  if not new.tid then -- others may have joined one that has an id
    fields[5], fields[6] = 'joiners', (over_socket and 'W' or '') .. address
  end
  call('HSET', new.key, unpack(fields))
  return register(new)
end

-- A failed command does not undo those before it, so keys of a wrong type have to fail before the first write. Loading
-- the torrent has checked its key.
local function check_all(t, pidx)
  check_rankings()
  call('SCARD', P .. 'tpeers:' .. t.ih)
  call('SCARD', P .. 'p:' .. pidx .. ':torrents')
  for _, array in ipairs({ 's4', 'l4', 's6', 'l6', 'sw', 'lw' }) do
    call('STRLEN', t.arrays .. array)
    call('STRLEN', t.arrays .. array .. 'i')
  end
end

local function register_torrent(ih, pidx, endpoint)
  if is_ready[ih] then return end
  local registered, t = call('GET', P .. 'info_hash:' .. ih), load_torrent(ih)
  local is_empty = t.seeders + t.leechers == 0
  if registered and t.tid and not is_empty then registered = t.tid end -- as announce.lua does
  if registered and registered == t.tid and not (is_empty and call('GET', P .. 'torrent_id:' .. registered) ~= ih) then
    return
  end
  check_all(t, pidx)
  if registered and not (#registered <= 15 and string.find(registered, '^[1-9]%d*$')) then return 'bad torrent id' end
  if registered and is_id_taken(t, registered) then return 'torrent id in use' end
  if not registered then
    if max_torrents == 0 then return 'unknown torrent' end
    local new, refusal = register_itself(t, endpoint)
    if not new then return refusal end
    registered = new
  end
  bind_id(t, registered)
  is_new[registered], is_ready[ih] = true, true
end

-- The user is adopted at the first join. Returns nil, or the reason of a refusal.
local function register_user(passkey)
  local uid = call('HGET', P .. 'user:' .. passkey, 'user_id')
  if not uid or uid == '' or call('HGET', P .. 'u:' .. uid, 'passkey') == passkey then return end
  return adopt(uid, passkey)
end

local function register_for(packed)
  local ih, pidx, event, _, _, _, _, _, _, _, endpoint, passkey = struct.unpack('<c40c40BBHI4I4sssBc0Bc0', packed)
  if event == STOP then return end
  return ARGV[2] == '1' and passkey ~= '' and register_user(passkey) or register_torrent(ih, pidx, endpoint)
end

local replies = { 0, 0 }
for i = 6, #ARGV do
  local ok, reply = pcall(register_for, ARGV[i])
  if not ok then
    reply = { 'error', type(reply) == 'table' and reply.err or tostring(reply) }
  elseif reply then
    reply = { reply, '' }
  end
  replies[i - 3] = reply or false
end
replies[1], replies[2] = forgotten, refused
return replies
