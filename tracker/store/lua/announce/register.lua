-- register.lua: a torrent registers itself at its first announce (open mode). Writes the registration, its counts by
-- address and network, and deletes torrents that make room. A part of join.lua, which runs it rarely.
--@ include lib/new_torrent_id.lua
local EMPTY_CANDIDATES = 4 -- empty torrents that are tried for one new torrent

-- The /24 of an IPv4 address, or the /48 of an IPv6 address, as text.
local function network_text(endpoint)
  if #endpoint == 6 then return format('%d.%d.%d.0/24', byte(endpoint, 1, 3)) end
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

-- Deletes the torrent that has been empty longest, and further ones while there are too many. Returns true when there
-- is room for one torrent. A torrent that was seen in many places takes several calls; each frees more than a new
-- torrent needs. A torrent that cannot be deleted leaves `i:empty`; the sweep adds it again if it belongs there.
local function make_room(own)
  -- Returns whether the torrent can be deleted, and whether all of it is deleted.
  local function try_delete(tid)
    local ih = call('GET', P .. 'torrent_id:' .. tid)
    if ih == own then return false, true end
    local old, auto, enabled
    if ih then old, auto, enabled = load_torrent(ih, 'auto', 'enabled') end
    if not old or old.tid ~= tid or auto ~= '1' or enabled == '0' or enabled == 'pending'
        or old.seeders + old.leechers > 0
        or call('SCARD', P .. 'tpeers:' .. ih) > 0 then
      error('in use')
    end
    if not delete_torrent(old) then return true, false end
    drop_rank(tid)
    sums.forgotten = sums.forgotten + 1
    for i = #sums.joined, 1, -1 do
      if sums.joined[i] == tid then table.remove(sums.joined, i) end
    end
    return true, true
  end

  local room = false
  for _, tid in ipairs(call('ZRANGE', P .. 'i:empty', 0, EMPTY_CANDIDATES - 1)) do
    local ok, done, whole_torrent = pcall(try_delete, tid)
    if not ok then call('ZREM', P .. 'i:empty', tid) end
    room = room or ok and done
    if ok and not whole_torrent or call('ZCARD', P .. 'i:seeders') < rules.max_torrents then break end
  end
  return room
end

-- The id, or nil and the reason for a refusal.
local function register_within_limits(new, endpoint)
  local address = P .. 'registered_by:' .. address_text(endpoint)
  local network = P .. 'registered_by:' .. network_text(endpoint)
  local refusal = registrations_of(address) >= rules.max_per_address and 'too many new torrents'
    or registrations_of(network) >= rules.max_per_network and 'too many new torrents from network'
    or call('ZCARD', P .. 'i:seeders') >= rules.max_torrents and not make_room(new.ih) and 'too many torrents'
  if refusal then
    sums.refused = sums.refused + 1
    return nil, refusal
  end
  count_registration(address)
  count_registration(network)
  if not new.tid then new.first = address_text(endpoint) end -- others may have joined a torrent that has an id
  call('HSET', new.key, 'auto', '1')
  return register(new)
end
