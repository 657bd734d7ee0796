-- register.lua: a torrent registers itself at its first announce (open mode). Writes the registration, its counts by
-- address and network, and deletes torrents that make room. A part of join.lua, which runs it rarely.
--@ include lib/new_torrent_id.lua
local EMPTY_CANDIDATES = 4 -- empty torrents that are tried for one new torrent
local SAMPLE = 100 -- torrents of a full register whose networks are looked at
local LARGE_SHARE = 0.1 -- a network with a larger part of them loses its own torrents first
local FEW_PEERS = 2 -- also those that have so many peers

-- The /24 of an IPv4 address, or the /48 of an IPv6 address, as text.
local function network_text(endpoint)
  endpoint = sockets.address(endpoint)
  if #endpoint == 4 then return format('%d.%d.%d.0/24', byte(endpoint, 1, 3)) end
  return format('%02x%02x:%02x%02x:%02x%02x::/48', byte(endpoint, 1, 6))
end

local function registrations_of(key)
  return tonumber(call('GET', key) or '') or 0
end

local function count_registration(key)
  if redis.pcall('INCR', key) == 1 then call('EXPIRE', key, 3600) end
end

--@ include lib/names.lua
--@ include lib/list_name.lua
--@ include lib/torrent_deletion.lua

local function is_replaceable(auto, enabled)
  return auto == '1' and enabled ~= '0' and enabled ~= 'pending'
end

-- The torrents that networks with a large share of the register added, in two lists: the ids of empty ones, longest
-- empty first, and the info hashes of those with few peers, oldest first. If `network` has such a share itself, only
-- its empty ones; then the third value is true.
local function of_large(network)
  local sample, number_of, rows = call('ZRANDMEMBER', P .. 'i:seeders', SAMPLE), {}, {}
  for _, tid in ipairs(sample) do
    local ih = call('GET', P .. 'torrent_id:' .. tid) or ''
    local v = redis.pcall('HMGET', P .. 't:' .. ih, 'by', 'seeders', 'leechers', 'empty_since', 'added', 'auto',
      'enabled')
    local by = v[1]
    if by then
      number_of[by] = (number_of[by] or 0) + 1
      local peers = (tonumber(v[2]) or 0) + (tonumber(v[3]) or 0)
      rows[#rows + 1] = { tid = tid, ih = ih, by = by, peers = peers, stays = not is_replaceable(v[6], v[7]),
        since = tonumber(v[peers == 0 and 4 or 5] or '') or 0 }
    end
  end
  table.sort(rows, function(one, other) return one.since < other.since end)
  local function is_large(by) return (number_of[by] or 0) > LARGE_SHARE * #sample end
  local empty, few, own = {}, {}, is_large(network)
  for _, one in ipairs(rows) do
    if own and one.by == network or not own and is_large(one.by) then
      if one.peers == 0 then
        empty[#empty + 1] = one.tid
      elseif not own and not one.stays and one.peers <= FEW_PEERS then
        few[#few + 1] = one.ih
      end
    end
  end
  return empty, few, own
end

-- Unregisters the first of these torrents that still is registered. Its peers are removed within seconds, and it is
-- deleted as an empty one then. Until then there is one torrent too many.
local function unregister_one(found)
  for _, ih in ipairs(found) do
    if call('DEL', P .. 'info_hash:' .. ih) == 1 then
      redis.pcall('SADD', P .. 'removing:torrents', ih)
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
    if not old or old.tid ~= tid or not is_replaceable(auto, enabled) or old.seeders + old.leechers > 0
        or call('SCARD', P .. 'tpeers:' .. ih) > 0 then
      error('in use')
    end
    if not delete_torrent(old) then return true, false end
    drop_rank(tid)
    sums.forgotten = sums.forgotten + 1
    sums.joined[tid] = nil
    return true, true
  end

  local room, empty, few, is_large = false, of_large(network)
  if #empty == 0 and not is_large then empty = call('ZRANGE', P .. 'i:empty', 0, EMPTY_CANDIDATES - 1) end
  for i, tid in ipairs(empty) do
    if i > EMPTY_CANDIDATES then break end
    local ok, done, whole_torrent = pcall(try_delete, tid)
    if not ok then call('ZREM', P .. 'i:empty', tid) end
    room = room or ok and done
    if ok and not whole_torrent or call('ZCARD', P .. 'i:seeders') < rules.max_torrents then break end
  end
  return room or unregister_one(few)
end

-- The id, or nil and the reason for a refusal.
local function register_within_limits(new, endpoint)
  local address = P .. 'registered_by:' .. address_text(endpoint)
  local by = network_text(endpoint)
  local network = P .. 'registered_by:' .. by
  local refusal = registrations_of(address) >= rules.max_per_address and 'too many new torrents'
    or registrations_of(network) >= rules.max_per_network and 'too many new torrents from network'
    or call('ZCARD', P .. 'i:seeders') >= rules.max_torrents and not make_room(new.ih, by) and 'too many torrents'
  if refusal then
    sums.refused = sums.refused + 1
    return nil, refusal
  end
  count_registration(address)
  count_registration(network)
  if not new.tid then new.first = address_text(endpoint) end -- others may have joined a torrent that has an id
  call('HSET', new.key, 'auto', '1', 'by', by)
  return register(new)
end
