-- peer_spread.lua: peer selection in a crowded swarm, where one network has many peers, and the announced ids of
-- derived ones. A fragment of peer_selection.lua.
local MAX_PER_NETWORK = 3 -- peers of one IPv4 address or /64 in a reply, while there are others
local WINDOW_FACTOR = 4 -- slots read per peer wanted

-- True when a reply holds more than MAX_PER_NETWORK peers of a network, or an endpoint twice: several users may share
-- one. With accounts it may be true without need, as find() also matches across two endpoints; that costs only time.
local function is_uneven(peers, size)
  local counts, net_size = {}, size == 6 and 4 or 8
  for at = 1, #peers, size do
    local net = sub(peers, at, at + net_size - 1)
    local before = counts[net]
    if not before then
      counts[net] = 1
    elseif before == MAX_PER_NETWORK or accounts and find(peers, sub(peers, at, at + size - 1), 1, true) < at then
      return true
    else
      counts[net] = before + 1
    end
  end
  return false
end

-- A window of an array, which is read when it is needed. `rest` and `rest_ids` are the peers of networks that have
-- MAX_PER_NETWORK peers already.
local function new_window(key, size, n)
  return { key = key, size = size, n = n, at = 0, rest = {}, rest_ids = {} }
end

-- Does what select_family() does, with each endpoint once and at most MAX_PER_NETWORK peers of a network while there
-- are others. `seen` holds what the reply has: endpoints, and networks with their number of peers.
local function select_spread(arrays, family, size, s, l, want, random, own, with_ids, seen)
  local peers, ids, n, net_size = {}, {}, 0, size == 6 and 4 or 8
  local function add(endpoint, id)
    n = n + 1
    peers[n], ids[n] = endpoint, id
  end
  -- Takes from a window until there are `limit` peers.
  local function fill(from, limit)
    if n >= limit or from.n == 0 then return end
    if not from.peers then
      from.peers = read_window(from.key, size, from.n, WINDOW_FACTOR * want, random)
      if with_ids then from.ids = read_window(from.key .. 'i', 20, from.n, WINDOW_FACTOR * want, random) end
    end
    while n < limit and from.at < #from.peers / size do
      local at = from.at
      from.at = at + 1
      local endpoint = sub(from.peers, at * size + 1, at * size + size)
      if endpoint ~= own and not seen[endpoint] then
        seen[endpoint] = true
        local net = sub(endpoint, 1, net_size)
        local count, id = seen[net] or 0, with_ids and sub(from.ids, at * 20 + 1, at * 20 + 20) or ''
        if count < MAX_PER_NETWORK then
          seen[net] = count + 1
          add(endpoint, id)
        else
          from.rest[#from.rest + 1], from.rest_ids[#from.rest + 1] = endpoint, id
        end
      end
    end
  end
  local seeders = new_window(arrays .. 's' .. family, size, s)
  local leechers = new_window(arrays .. 'l' .. family, size, l)
  fill(seeders, l > 0 and max(1, (want * 3 - want * 3 % 4) / 4) or want)
  fill(leechers, want)
  fill(seeders, want)
  for _, from in ipairs({ leechers, seeders }) do
    for i = 1, min(#from.rest, want - n) do add(from.rest[i], from.rest_ids[i]) end
  end
  return table.concat(peers), table.concat(ids)
end

-- The ids that peers announced, for the ids of their entries: an entry with a derived id holds the announced one.
local function announced_ids(tid, ids)
  local announced = {}
  for at = 1, #ids, 20 do
    local id = sub(ids, at, at + 19)
    local idx = string.format('%08x%08x%08x%08x%08x', read('>I4I4I4I4I4', id))
    local stored = call('HGET', P .. 'p:' .. tid .. ':' .. idx, 'peer_id')
    announced[#announced + 1] = stored and #stored == 20 and stored or id
  end
  return table.concat(announced)
end
