-- reply.lua: which peers an announce gets, and its reply. Reads the arrays of the swarm; writes nothing.
-- `slots` of the `n` slots of an array, from a random one on, wrapping around; all slots when there are no more.
local function read_window(key, size, n, slots, random)
  if n <= slots then return call('GETRANGE', key, 0, n * size - 1) end
  local start = random % n
  if start + slots <= n then return call('GETRANGE', key, start * size, (start + slots) * size - 1) end
  local rest = (start + slots - n) * size
  if n <= 512 then -- to copy these costs less than a second command
    local all = call('GETRANGE', key, 0, n * size - 1)
    return sub(all, start * size + 1) .. sub(all, 1, rest)
  end
  return call('GETRANGE', key, start * size, n * size - 1) .. call('GETRANGE', key, 0, rest - 1)
end

-- `peers`, and their ids if there are any, without the caller's own endpoint, which stands at `at`: its slot, and slots
-- that it left under an older peer id.
local function remove_own(peers, size, own, at, ids)
  while at do
    if (at - 1) % size == 0 then
      peers = sub(peers, 1, at - 1) .. sub(peers, at + size)
      if ids ~= '' then
        local slot = (at - 1) / size
        ids = sub(ids, 1, slot * 20) .. sub(ids, slot * 20 + 21)
      end
    else
      at = at + 1
    end
    at = find(peers, own, at, true)
  end
  return peers, ids
end

-- At most `want` endpoints of an array and their ids, without the caller's own. `spare` is 1 when the caller may be in
-- the array: one slot more is read then.
local function select_slots(key, size, n, want, spare, random, own, with_ids)
  local slots, ids, peers = want + spare, ''
  if n <= slots then
    peers = call('GETRANGE', key, 0, n * size - 1)
  else
    peers = read_window(key, size, n, slots, random)
  end
  if with_ids then ids = read_window(key .. 'i', 20, n, slots, random) end
  local at = own and find(peers, own, 1, true)
  if at then peers, ids = remove_own(peers, size, own, at, ids) end
  if #peers > want * size then return sub(peers, 1, want * size), sub(ids, 1, want * 20) end
  return peers, ids
end

-- Peers of one family: three quarters of the `s` seeders, and more when the `l` leechers are too few; then leechers.
-- The caller may be among the leechers.
function select_family(ih, family, size, s, l, want, random, own, with_ids)
  if want <= 0 or s + l == 0 then return '', '' end
  if s == 0 then return select_slots(P .. 'swarm:' .. ih .. ':l' .. family, size, l, want, 1, random, own, with_ids) end
  local seeders = want
  if l > 0 then
    if s + l <= want and not with_ids then -- all of both: one command takes less than two
      local both = call('MGET', P .. 'swarm:' .. ih .. ':s' .. family, P .. 'swarm:' .. ih .. ':l' .. family)
      local peers = sub(both[1] or '', 1, s * size) .. sub(both[2] or '', 1, l * size)
      local at = own and find(peers, own, 1, true)
      return at and remove_own(peers, size, own, at, '') or peers, ''
    end
    local others = own and l - 1 or l
    seeders = want - (want + 3 - (want + 3) % 4) / 4
    if seeders < want - others then seeders = want - others elseif seeders == 0 then seeders = 1 end
  end
  local peers, ids =
    select_slots(P .. 'swarm:' .. ih .. ':s' .. family, size, s, seeders, 0, random, own, with_ids)
  if l == 0 or #peers >= want * size then return peers, ids end
  local more, more_ids =
    select_slots(P .. 'swarm:' .. ih .. ':l' .. family, size, l, want - #peers / size, 1, random, own, with_ids)
  return peers .. more, ids .. more_ids
end

-- A crowded swarm, where one network has many peers, is selected from one by one.
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
local function select_spread(ih, family, size, s, l, want, random, own, with_ids, seen)
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
  local seeders = new_window(P .. 'swarm:' .. ih .. ':s' .. family, size, s)
  local leechers = new_window(P .. 'swarm:' .. ih .. ':l' .. family, size, l)
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
    local idx = format('%08x%08x%08x%08x%08x', read('>I4I4I4I4I4', id))
    local stored = call('HGET', P .. 'p:' .. tid .. ':' .. idx, 'peer_id')
    announced[#announced + 1] = stored and #stored == 20 and stored or id
  end
  return table.concat(announced)
end

-- Peers that a lookup in the DHT found are added to a reply with few peers. They are not in the swarm and count
-- nowhere, but in `given`.
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
  if not takes_part(true, false, private, '1', rules.give_all) then return '' end
  local found = redis.pcall('GET', P .. 'dht:peers:' .. ih .. (size == 18 and ':6' or ''))
  if type(found) ~= 'string' then return '' end
  local address, chosen, n = own and sub(own, 1, size - 2), {}, 0
  for at = 1, #found - size + 1, size do
    local endpoint = sub(found, at, at + size - 1)
    if n < room and sub(endpoint, 1, size - 2) ~= address and not is_among(listed, endpoint, size)
        and not (rules.untold and rules.untold[sub(endpoint, -2)]) then
      n = n + 1
      chosen[n] = endpoint
    end
  end
  sums.given = sums.given + n
  return table.concat(chosen)
end

-- The peers of a reply with those of the DHT.
local function add_dht_peers(ih, peers4, peers6, room, on_v4, own4, own6)
  room = min(room, MAX_GIVEN)
  if on_v4 then return peers4 .. dht_peers(ih, 6, peers4, room, own4), peers6 end
  return peers4, peers6 .. dht_peers(ih, 18, peers6, room, own6)
end

-- The peers of a reply and their ids, selected by `by_family`: IPv4, IPv6. The caller's own family comes first; the
-- other one fills what remains.
local function select_both(by_family, ih, s4, s6, l4, l6, want, random, with_ids, on_v4, own4, own6, seen)
  local peers4, ids4, peers6, ids6
  if on_v4 then
    peers4, ids4 = by_family(ih, '4', 6, s4, l4, want, random, own4, with_ids, seen)
    if s6 + l6 == 0 then return peers4, ids4, '', '' end
    peers6, ids6 = by_family(ih, '6', 18, s6, l6, want - #peers4 / 6, random, own6, with_ids, seen)
  else
    peers6, ids6 = by_family(ih, '6', 18, s6, l6, want, random, own6, with_ids, seen)
    peers4, ids4 = by_family(ih, '4', 6, s4, l4, want - #peers6 / 18, random, own4, with_ids, seen)
  end
  return peers4, ids4, peers6, ids6
end

-- Which peers are not returned: those that are being removed, those of the user who asks and of hidden users
-- (`rules.hidden`), and those at untold ports. Replies are filtered and not filled up.
local clients_removed, of_removing -- the check of client prefixes, made of this text

function forget_barred()
  barred_users = {}
end

local function is_removed(uid, idx, announced)
  if uid and (find(removing, ' user:' .. uid .. ' ', 1, true)
      or find(removing, ' user:* ', 1, true) and is_user_barred(uid)) then
    return true
  end
  if of_removing ~= removing then
    local prefixes = string.gsub(string.gsub(removing, 'user:%S+', ''), 'client:', '')
    clients_removed, of_removing = new_client_check(prefixes), removing
  end
  return clients_removed and clients_removed(announced and #announced == 20 and to_hex(announced) or idx)
end

-- The endpoints of `size` bytes, and their ids, for which `is_told` is true.
local function filter(peers, ids, size, is_told)
  local stay, stay_ids, n = {}, {}, 0
  for i = 0, #peers / size - 1 do
    local endpoint, pid = sub(peers, i * size + 1, i * size + size), sub(ids, i * 20 + 1, i * 20 + 20)
    if is_told(endpoint, pid) then
      n = n + 1
      stay[n], stay_ids[n] = endpoint, pid
    end
  end
  return table.concat(stay), table.concat(stay_ids)
end

-- Those that may be returned. `own`: the id of the user who asks, nil when that user's peers may be returned.
local function told_by_id(tid, own, peers, ids, size)
  return filter(peers, ids, size, function(_, pid)
    if #pid ~= 20 then return false end
    local idx = to_hex(pid)
    local v = call('HMGET', P .. 'p:' .. tid .. ':' .. idx, 'user_id', 'peer_id')
    local hidden = rules.hidden and v[1] and find(rules.hidden, ' ' .. v[1] .. ' ', 1, true)
    return not (hidden or own and v[1] == own or removing and is_removed(v[1], idx, v[2]))
  end)
end

local function has_told_port(endpoint)
  return not rules.untold[sub(endpoint, -2)]
end

-- The reply to an announce: the counts of the swarm (`head`), then peers. `s4` to `l6` are the lengths of the arrays;
-- the first two are 0 for a seeder, which gets leechers only. `crowded` is the torrent's count,
-- `derived` the torrent's id when entries have derived ids, `dht` until when peers of the DHT may be handed out.
-- Those have no peer ids. `own`: as told_by_id() has it.
function add_peers(head, ih, s4, s6, l4, l6, want, random, with_ids, on_v4, own4, own6, crowded, derived, dht,
    tid, own)
  local by_id = removing or own
  local peers4, ids4, peers6, ids6
  if on_v4 and s6 + l6 == 0 then -- nearly always
    peers4, ids4 = select_family(ih, '4', 6, s4, l4, want, random, own4, with_ids or by_id)
    peers6, ids6 = '', ''
  else
    peers4, ids4, peers6, ids6 =
      select_both(select_family, ih, s4, s6, l4, l6, want, random, with_ids or by_id, on_v4, own4, own6)
  end
  if crowded > 0 and (accounts or s4 + s6 + l4 + l6 > want) then
    if is_uneven(peers4, 6) or is_uneven(peers6, 18) then
      peers4, ids4, peers6, ids6 =
        select_both(select_spread, ih, s4, s6, l4, l6, want, random, with_ids or by_id, on_v4, own4, own6, {})
    end
  end
  if by_id then
    peers4, ids4 = told_by_id(tid, own, peers4, ids4, 6)
    peers6, ids6 = told_by_id(tid, own, peers6, ids6, 18)
    if not with_ids then ids4, ids6 = '', '' end
  end
  if rules.untold then
    peers4, ids4 = filter(peers4, ids4, 6, has_told_port)
    peers6, ids6 = filter(peers6, ids6, 18, has_told_port)
  end
  if dht and not with_ids and (tonumber(dht) or 0) > now then
    local listed = #peers4 / 6 + #peers6 / 18
    if listed < give_below and listed < want then
      peers4, peers6 = add_dht_peers(ih, peers4, peers6, want - listed, on_v4, own4, own6)
    end
  end
  if peers6 == '' and (peers4 == '' or not with_ids) then return head .. peers4 end
  if with_ids and derived then
    ids4, ids6 = announced_ids(derived, ids4), announced_ids(derived, ids6)
  end
  return string.upper(head) .. struct.pack('<HHH', #peers4, #peers6, #ids4) .. peers4 .. peers6 .. ids4 .. ids6
end

-- The reply over a WebSocket: other WebSockets, for each of which the caller has an offer. `s` and `l` are the lengths
-- of their arrays; the rest is as above.
function sockets.reply(head, ih, s, l, want, random, endpoint, tid, own)
  local by_id = removing or own
  local peers, ids = select_family(ih, 'w', sockets.BYTES, s, l, want, random, endpoint, by_id)
  if by_id then peers = told_by_id(tid, own, peers, ids, sockets.BYTES) end
  return head .. peers
end
