-- dht_peers.lua: adds peers that a lookup in the DHT found to a reply with few peers. A fragment of peer_selection.lua.
-- They are not in the swarm and count nowhere, but in `given`.
--@ include lib/dht_part.lua
local MAX_GIVEN = 20

local function is_among(endpoints, endpoint, size)
  local at = find(endpoints, endpoint, 1, true)
  while at and (at - 1) % size ~= 0 do at = find(endpoints, endpoint, at + 1, true) end
  return at ~= nil
end

-- At most `room` endpoints that are not in `listed`, of `size` bytes, none with the address of the caller's endpoint.
local function dht_peers(ih, size, listed, room, own)
  local private = call('HGET', P .. 't:' .. ih, 'private')
  if not takes_part(true, false, private, '1', give_all) then return '' end
  local found = redis.pcall('GET', P .. 'dht:peers:' .. ih .. (size == 18 and ':6' or ''))
  if type(found) ~= 'string' then return '' end
  local address, chosen, n = own and sub(own, 1, size - 2), {}, 0
  for at = 1, #found - size + 1, size do
    local endpoint = sub(found, at, at + size - 1)
    if n < room and sub(endpoint, 1, size - 2) ~= address and not is_among(listed, endpoint, size) then
      n = n + 1
      chosen[n] = endpoint
    end
  end
  given = given + n
  return table.concat(chosen)
end

-- The peers of a reply with those of the DHT. `arrays` ends with the info hash and a colon.
local function add_dht_peers(arrays, peers4, peers6, room, on_v4, own4, own6)
  local ih = sub(arrays, -41, -2)
  room = min(room, MAX_GIVEN)
  if on_v4 then return peers4 .. dht_peers(ih, 6, peers4, room, own4), peers6 end
  return peers4, peers6 .. dht_peers(ih, 18, peers6, room, own6)
end
