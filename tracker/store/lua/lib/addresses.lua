-- addresses.lua: the endpoints of each network in a swarm.
--
-- `addresses:<ih>` holds an entry for each endpoint in the swarm, by network: a packed IPv4 address, or the /64 of an
-- IPv6 address. An entry is the rest of the endpoint and the peer id, 22 or 30 bytes; that of a WebSocket has port 0,
-- which no other peer has. `crowded` of the torrent counts the networks for which is_crowded() is true.
-- `addresses` counts the entries of all swarms, by network and by /24 or /48.
--@ include lib/torrent.lua

local MAX_UNCROWDED = 3 -- entries of one network that do not make it crowded

-- The endpoint of a WebSocket: its address as IPv6 (16 bytes), its process (4) and its number there (5). It is at the
-- end of a peer's endpoints.
local sockets = { BYTES = 25 }
sockets.SIZE_OF = { ['4'] = 6, ['6'] = 18, w = sockets.BYTES } -- bytes of an endpoint by family

-- The IPv4 endpoint, the IPv6 endpoint and the WebSocket of a peer, '' for none.
local function split_families(endpoints)
  local n, socket = #endpoints, ''
  if n == 6 then return endpoints, '', '' end
  if n >= sockets.BYTES then
    endpoints, socket, n = endpoints:sub(1, -sockets.BYTES - 1), endpoints:sub(-sockets.BYTES), n - sockets.BYTES
    if n == 6 then return endpoints, '', socket end
  end
  return n == 24 and endpoints:sub(1, 6) or '', n >= 18 and endpoints:sub(-18) or '', socket
end

function sockets.on_v4(endpoint)
  return #endpoint == sockets.BYTES and endpoint:sub(1, 12) == '\0\0\0\0\0\0\0\0\0\0\255\255'
end

-- The packed address of an endpoint.
function sockets.address(endpoint)
  if #endpoint ~= sockets.BYTES then return endpoint:sub(1, -3) end
  return endpoint:sub(sockets.on_v4(endpoint) and 13 or 1, 16)
end

-- An endpoint as it is listed here.
function sockets.listed(endpoint)
  return #endpoint == sockets.BYTES and sockets.address(endpoint) .. '\0\0' or endpoint
end

-- The network of an endpoint, and the rest of it as it is listed.
local function split_endpoint(endpoint)
  if #endpoint == 6 then return endpoint:sub(1, 4), endpoint:sub(5) end
  if #endpoint == sockets.BYTES then return split_endpoint(sockets.listed(endpoint)) end
  return endpoint:sub(1, 8), endpoint:sub(9)
end

local function entry_size(net)
  return #net == 4 and 22 or 30
end

-- The position of the first entry that begins with `wanted`, from byte `from` on.
local function find_entry(entries, size, wanted, from)
  local at = entries:find(wanted, from or 1, true)
  while at and (at - 1) % size ~= 0 do at = entries:find(wanted, at + size - (at - 1) % size, true) end
  return at
end

-- Loopback, private, link-local and carrier-grade NAT networks: many peers behind one proxy may share an address.
local function is_local(net)
  local a, b = string.byte(net, 1, 2)
  if #net == 4 then
    return a == 10 or a == 127 or a == 192 and b == 168 or a == 172 and b >= 16 and b < 32 or a == 169 and b == 254
      or a == 100 and b >= 64 and b < 128
  end
  return a == 0xfc or a == 0xfd or a == 0xfe and b >= 0x80 and b < 0xc0 or not string.find(net, '[^%z]')
end

-- True for more than MAX_UNCROWDED entries of a network that is not local, and for two entries with the same endpoint
-- (of different users); WebSockets at one address are different ones.
local function is_crowded(net, entries, size)
  if #entries == size then return false end
  if #entries > MAX_UNCROWDED * size and not is_local(net) then return true end
  local seen = {}
  for at = 1, #entries, size do
    local rest = string.sub(entries, at, at + size - 21)
    if seen[rest] then return true end
    seen[rest] = string.sub(rest, -2) ~= '\0\0'
  end
  return false
end

-- The changes of `addresses` by network; save_network_counts() writes them.
local network_changes = {}
local function count_entries(net, by)
  local changed, wide = network_changes, net:sub(1, #net == 4 and 3 or 6)
  changed[net] = (changed[net] or 0) + by
  changed[wide] = (changed[wide] or 0) + by
end

-- Whether two entries have the endpoint that ends in `rest`.
local function is_shared(entries, size, rest)
  local at = find_entry(entries, size, rest)
  return at and string.sub(rest, -2) ~= '\0\0' and find_entry(entries, size, rest, at + size) ~= nil
end

-- By how much the count of crowded networks changes. Only the entries of the endpoints `rest` and `other` (or nil) may
-- differ, so in a network with many entries only these need a look.
local function crowding(net, before, entries, size, rest, other)
  if #before <= size and #entries <= size then return 0 end
  if #before > MAX_UNCROWDED * size and #entries > MAX_UNCROWDED * size then
    if not is_local(net) then return 0 end
    local shared = is_shared(before, size, rest) or is_shared(entries, size, rest)
      or other and (is_shared(before, size, other) or is_shared(entries, size, other))
    if not shared then return 0 end
  end
  return (is_crowded(net, entries, size) and 1 or 0) - (is_crowded(net, before, size) and 1 or 0)
end

-- Replaces the entries of a network ('' for none), for crowding().
local function write_entries(t, net, before, entries, rest, other)
  local key, size = P .. 'addresses:' .. t.ih, entry_size(net)
  if entries == '' then call('HDEL', key, net) else call('HSET', key, net, entries) end
  if #entries ~= #before then count_entries(net, (#entries - #before) / size) end
  t.crowded = math.max(0, t.crowded + crowding(net, before, entries, size, rest, other))
end

-- A hash of a wrong type must not keep a peer in the swarm; the sweep rebuilds it.
local function remove_address(t, endpoint, pid)
  local net, rest = split_endpoint(endpoint)
  local key, entry, size = P .. 'addresses:' .. t.ih, rest .. pid, entry_size(net)
  local entries = redis.pcall('HGET', key, net)
  if entries == entry then -- nearly always
    call('HDEL', key, net)
    return count_entries(net, -1)
  end
  local at = type(entries) == 'string' and find_entry(entries, size, entry)
  if at then write_entries(t, net, entries, entries:sub(1, at - 1) .. entries:sub(at + size), rest) end
end

local function remove_addresses(t, endpoints, pid)
  local v4, v6, socket = split_families(endpoints)
  if v4 ~= '' then remove_address(t, v4, pid) end
  if v6 ~= '' then remove_address(t, v6, pid) end
  if socket ~= '' then remove_address(t, socket, pid) end
end

-- Writes the changes of `addresses`. Calls `note(net, count)` for each network that has grown to `many` or more.
local function save_network_counts(many, note)
  local nets, key, per_call = {}, P .. 'addresses', 500
  for net, by in pairs(network_changes) do
    if by ~= 0 then nets[#nets + 1] = net end
  end
  for from = 1, #nets, per_call do
    local till = math.min(from + per_call - 1, #nets)
    local counts, written, gone, n = call('HMGET', key, unpack(nets, from, till)), {}, {}, 0
    for i = from, till do
      local net = nets[i]
      local by = network_changes[net]
      local count = (count_of[counts[i - from + 1]] or 0) + by
      if count > 0 then
        n, written[n + 1], written[n + 2] = n + 2, net, count
        if by > 0 and note and count >= many then note(net, count) end
      else
        gone[#gone + 1] = net
      end
    end
    if n > 0 then call('HSET', key, unpack(written)) end
    if #gone > 0 then call('HDEL', key, unpack(gone)) end
  end
  network_changes = {}
end

-- luacheck: push ignore 211 (not every script adds peers)
-- Entries of one network in a swarm. Further peers of a local network are in the swarm without an entry.
local MAX_ENTRIES = 1024

-- Adds the endpoint of a network that has none in the swarm, and returns nil; else returns the entries it has.
local function claim_network(t, net, rest, pid)
  local key = P .. 'addresses:' .. t.ih
  if call('HSETNX', key, net, rest .. pid) == 0 then return call('HGET', key, net) end
  count_entries(net, 1)
end
-- luacheck: pop
