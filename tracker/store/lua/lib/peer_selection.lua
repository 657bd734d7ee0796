-- peer_selection.lua: which peers an announce gets, and its reply. A fragment of announce.lua, after `call`.

-- `slots` of the `n` slots of an array, from a random one on, wrapping around; all slots when there are no more.
local function read_window(key, size, n, slots, random)
  if n <= slots then return call('GETRANGE', key, 0, n * size - 1) end
  local start = random % n
  if start + slots <= n then return call('GETRANGE', key, start * size, (start + slots) * size - 1) end
  return call('GETRANGE', key, start * size, n * size - 1) .. call('GETRANGE', key, 0, (start + slots - n) * size - 1)
end

-- At most `want` endpoints of an array and their ids, without the caller's own endpoint: its slot, and slots that it
-- left under an older peer id. `spare` is 1 when the caller may be in the array: one slot more is read then.
local function select_slots(key, size, n, want, spare, random, own, with_ids)
  local peers, ids = read_window(key, size, n, want + spare, random), ''
  if with_ids then ids = read_window(key .. 'i', 20, n, want + spare, random) end
  local at = own and find(peers, own, 1, true)
  while at do
    if (at - 1) % size == 0 then
      local slot = (at - 1) / size
      peers = sub(peers, 1, at - 1) .. sub(peers, at + size)
      ids = sub(ids, 1, slot * 20) .. sub(ids, slot * 20 + 21)
    else
      at = at + 1
    end
    at = find(peers, own, at, true)
  end
  if #peers > want * size then return sub(peers, 1, want * size), sub(ids, 1, want * 20) end
  return peers, ids
end

-- Peers of one family: three quarters of the `s` seeders, and more when the `l` leechers are too few; then leechers.
-- The caller may be among the leechers.
local function select_family(arrays, family, size, s, l, want, random, own, with_ids)
  local peers, ids = '', ''
  if want <= 0 then return peers, ids end
  if s > 0 then
    local seeders = want
    if l > 0 then seeders = max(1, (want * 3 - want * 3 % 4) / 4, want - l + (own and 1 or 0)) end
    peers, ids = select_slots(arrays .. 's' .. family, size, s, min(want, seeders), 0, random, own, with_ids)
  end
  if l == 0 or #peers >= want * size then return peers, ids end
  local more, more_ids = select_slots(arrays .. 'l' .. family, size, l, want - #peers / size, 1, random, own, with_ids)
  if peers == '' then return more, more_ids end
  return peers .. more, ids .. more_ids
end

-- The function that leaves out peers that are being removed, created when first needed.
local without_removed
local function new_filter()
--@ include lib/peer_removal.lua
  return filter_removed
end

-- Functions for crowded swarms, derived ids and peers of the DHT, created when first needed: few swarms need them.
local rare_functions
local function rare()
  if not rare_functions then
--@ include lib/peer_spread.lua
--@ include lib/dht_peers.lua
    rare_functions = {
      select_spread = select_spread, announced_ids = announced_ids, is_uneven = is_uneven,
      add_dht_peers = add_dht_peers,
    }
  end
  return rare_functions
end

-- The peers of a reply and their ids, selected by `by_family`: IPv4, IPv6. The caller's own family comes first; the
-- other one fills what remains.
local function select_both(by_family, arrays, s4, s6, l4, l6, want, random, with_ids, on_v4, own4, own6, seen)
  local peers4, ids4, peers6, ids6
  if on_v4 then
    peers4, ids4 = by_family(arrays, '4', 6, s4, l4, want, random, own4, with_ids, seen)
    if s6 + l6 == 0 then return peers4, ids4, '', '' end
    peers6, ids6 = by_family(arrays, '6', 18, s6, l6, want - #peers4 / 6, random, own6, with_ids, seen)
  else
    peers6, ids6 = by_family(arrays, '6', 18, s6, l6, want, random, own6, with_ids, seen)
    peers4, ids4 = by_family(arrays, '4', 6, s4, l4, want - #peers6 / 18, random, own4, with_ids, seen)
  end
  return peers4, ids4, peers6, ids6
end

-- The reply to an announce: the counts of the swarm (`head`), then peers. `s4` to `l6` are the lengths of the arrays;
-- the first two are 0 for a seeder, which gets leechers only. `crowded` is the torrent's count (nil: unknown),
-- `derived` the torrent's id when entries have derived ids, `dht` until when peers of the DHT may be handed out.
-- Those have no peer ids. `tid` is the torrent's id: while peers are being removed, the ids of all candidates are read.
local function add_peers(head, arrays, s4, s6, l4, l6, want, random, with_ids, on_v4, own4, own6, crowded, derived, dht,
    tid)
  local read_ids = with_ids or removing
  local peers4, ids4, peers6, ids6 =
    select_both(select_family, arrays, s4, s6, l4, l6, want, random, read_ids, on_v4, own4, own6)
  if crowded and crowded ~= '0' and (accounts or s4 + s6 + l4 + l6 > want) then
    local functions = rare()
    if functions.is_uneven(peers4, 6) or functions.is_uneven(peers6, 18) then
      peers4, ids4, peers6, ids6 =
        select_both(functions.select_spread, arrays, s4, s6, l4, l6, want, random, read_ids, on_v4, own4, own6, {})
    end
  end
  if removing then
    without_removed = without_removed or new_filter()
    peers4, ids4 = without_removed(tid, peers4, ids4, 6)
    peers6, ids6 = without_removed(tid, peers6, ids6, 18)
    if not with_ids then ids4, ids6 = '', '' end
  end
  if dht and not with_ids and (tonumber(dht) or 0) > now then
    local listed = #peers4 / 6 + #peers6 / 18
    if listed < give_below and listed < want then
      peers4, peers6 = rare().add_dht_peers(arrays, peers4, peers6, want - listed, on_v4, own4, own6)
    end
  end
  if peers6 == '' and not with_ids then return head .. peers4 end
  if with_ids and derived then
    local announced_ids = rare().announced_ids
    ids4, ids6 = announced_ids(derived, ids4), announced_ids(derived, ids6)
  end
  return string.upper(head) .. struct.pack('<HHH', #peers4, #peers6, #ids4) .. peers4 .. peers6 .. ids4 .. ids6
end
