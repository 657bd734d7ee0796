-- endpoints.lua: which peer of a swarm has an endpoint, which peer takes it over, and how many endpoints a network may
-- have. Writes `addresses:<ih>` and `addresses:full`, and removes peers that lose their endpoint.

-- A network is an IPv4 address or a /64; a /24 or a /48 may have ten times as many endpoints in all swarms. `full`
-- lists the networks at their limit (hex, between spaces; false for none). It is read with each batch, so that most
-- joins need no command for it. `newly_full`: those that reached it in this call.

local function network_hex(net)
  return (string.gsub(net, '.', function(one) return format('%02x', byte(one)) end))
end

-- True when no limit holds for the announce. Behind an untrusted proxy all peers seem to have the proxy's address.
local function is_unbounded(r, net)
  return r.unbounded or not rules.bound_local and is_local(net)
end

local function max_entries(net)
  return (#net == 4 or #net == 8) and rules.max_in_all or 10 * rules.max_in_all
end

-- True when the network, or its wide network, is at its limit. Removes a network that is below it again from `full`.
local function is_full(net)
  if not full then return false end
  for _, one in ipairs({ net, sub(net, 1, #net == 4 and 3 or 6) }) do
    local entry = ' ' .. network_hex(one) .. ' '
    if find(full, entry, 1, true) then
      if (count_of[call('HGET', P .. 'addresses', one)] or 0) >= max_entries(one) then return true end
      full = string.gsub(full, entry, ' ')
    end
  end
  return false
end

-- True when the announce adds an endpoint to a network at its limit; `old` is the endpoint that it replaces. A peer
-- that starts may take over an endpoint of its network in this swarm: take_endpoint() decides that, by `r.beyond`.
function is_beyond(t, r, old)
  if old == r.endpoint then return false end
  local net = split_endpoint(r.endpoint)
  if split_endpoint(old) == net or is_unbounded(r, net) or not is_full(net) then return false end
  r.beyond = r.event == 's' and not r.on_socket and call('HEXISTS', P .. 'addresses:' .. t.ih, net) == 1
  return not r.beyond
end

-- save_network_counts() calls this for each network that has grown beyond the limit of an address.
function note_full(net, count)
  if count >= max_entries(net) then sums.newly_full[#sums.newly_full + 1] = network_hex(net) end
end

function save_full()
  for _, entry in ipairs(sums.newly_full) do
    if not (full and find(full, ' ' .. entry .. ' ', 1, true)) then full = (full or ' ') .. entry .. ' ' end
  end
  sums.newly_full = {}
  if full == sums.full_before then return end
  if full == ' ' then call('DEL', P .. 'addresses:full') else call('SET', P .. 'addresses:full', full) end
end

-- Fails when an array is of a wrong type, before anything is written.
function check_arrays(t, r)
  for _, family in ipairs({ r.v4 ~= '' and '4' or '6', r.v6 ~= '' and '6' or '4', r.w ~= '' and 'w' or nil }) do
    call('STRLEN', t.arrays .. r.kind .. family)
    call('STRLEN', t.arrays .. r.kind .. family .. 'i')
  end
end

-- The peer of an entry for `endpoint`; `stale` when no such peer has the endpoint.
function load_holder(t, pid, endpoint)
  local pidx = to_hex(pid)
  local at = P .. 'p:' .. t.tid .. ':' .. pidx
  local v = call('HMGET', at, 'active', 'left', 'paused', 'n4', 'n6', 'endpoints', 'user_id')
  local v4, v6 = split_families(v[6] or '')
  local stale = v[1] ~= '1' or v4 ~= endpoint and v6 ~= endpoint
  return { pid = pid, pidx = pidx, at = at, active = v[1] == '1', stale = stale, left = v[2], paused = v[3],
    n4 = v[4], n6 = v[5], endpoints = v[6] or '', uid = v[7] or '' }
end

function without_entry(entries, at, size)
  return sub(entries, 1, at - 1) .. sub(entries, at + size)
end

-- Adds the peer's endpoint to its network, in place of `old`, the peer's endpoint of that family ('' for none). Returns
-- nil, and sets `r.evicted` to the peers that lose the endpoint; or returns the outcome, and nothing has changed. A
-- peer that starts takes its endpoint over: it is a client with a new peer id. With accounts it has to be the same
-- user; another user's peer stays beside it. A user's peer replaces an anonymous one, whatever the event. An anonymous
-- peer never takes a user's endpoint. So a client that announces both with and without its passkey is listed once.
-- WebSockets share their address.
function take_endpoint(t, r, old)
  local net, rest = split_endpoint(r.endpoint)
  local old_net, old_rest
  if old ~= '' then
    old_net, old_rest = split_endpoint(old)
    if old_net == net and old_rest == rest then return end -- another WebSocket at the same address
  end
  local entries = claim_network(t, net, rest, r.pid)
  if entries then
    local size, after, evicted = entry_size(net), entries, {}
    if old_net == net then
      local own = find_entry(after, size, old_rest .. r.pid)
      if own then after = without_entry(after, own, size) end
    end
    local at = not r.on_socket and find_entry(after, size, rest)
    while at do
      local holder = load_holder(t, sub(after, at + #rest, at + size - 1), r.endpoint)
      local same = not accounts or holder.uid == r.uid
      local yields = same and r.event == 's' or r.uid ~= '' and holder.uid == ''
      local from = at + size
      if holder.stale or holder.pid == r.pid or yields then
        after, from = without_entry(after, at, size), at
        if not holder.stale and holder.pid ~= r.pid then evicted[#evicted + 1] = holder end
      elseif same or r.uid == '' then
        return 'd'
      end
      at = find_entry(after, size, rest, from)
    end
    local max_here = is_unbounded(r, net) and MAX_ENTRIES or min(rules.max_in_swarm, MAX_ENTRIES)
    if #after >= #entries and (r.beyond or #after >= max_here * size) then
      if not is_local(net) or rules.bound_local then return 'o' end
    else
      after = after .. rest .. r.pid
    end
    if #evicted > 0 then
      check_arrays(t, r)
      call('SCARD', P .. 'tpeers:' .. t.ih)
      call('SCARD', P .. 'p:' .. r.pidx .. ':torrents')
      r.evicted = evicted
    end
    if after ~= entries then write_entries(t, net, entries, after, rest, old_net == net and old_rest or nil) end
  end
  if old_net and old_net ~= net then remove_address(t, old, r.pid) end
end

-- Removes a peer from the swarm. `endpoints` are those whose entries are to be removed too.
function drop_holder(t, holder, endpoints)
  leave_swarm(t, holder.pid, holder.pidx, holder.left, holder.paused, holder.n4, holder.n6, endpoints)
  feed.record_peer('replaced', t, holder.pidx, holder.uid, holder.left)
  local timeout = P .. 'ptimeout:' .. t.tid .. ':' .. holder.pidx
  if is_remembered(holder.uid) then
    deactivate_peer(holder.at)
    call('DEL', timeout)
  else
    call('UNLINK', holder.at, timeout)
  end
end

-- Takes the endpoint from the peers in `r.evicted`. Returns how many peers of the same user left the swarm because it
-- was their only one.
function evict(t, r)
  local removed = 0
  for _, holder in ipairs(r.evicted or {}) do
    local v4, v6, socket = split_families(holder.endpoints)
    local family, slot, other = '4', holder.n4, v6 .. socket
    if #r.endpoint == 18 then family, slot, other = '6', holder.n6, v4 .. socket end
    if other ~= '' then
      if slot then remove_slot(t, kind_of(holder.left, holder.paused), family, tonumber(slot), holder.pid) end
      call('HSET', holder.at, 'endpoints', other)
      call('HDEL', holder.at, 'n' .. family)
    else
      drop_holder(t, holder)
      if holder.uid == r.uid then
        removed = removed + 1
      elseif holder.uid ~= '' then -- it joined before accounts were switched off
        end_activity_of(holder.uid, t.tid, false)
      end
    end
  end
  return removed
end

-- Adds the peer to the arrays of its kind. Returns the hash fields that hold its slots.
function insert_peer(t, r, p)
  local n4 = r.v4 ~= '' and insert_slot(t, r.kind, '4', r.v4, r.pid, r.random)
  local n6 = r.v6 ~= '' and insert_slot(t, r.kind, '6', r.v6, r.pid, r.random)
  if r.w ~= '' then
    call('HSET', p.at, 'nw', insert_slot(t, r.kind, 'w', r.w, r.pid, r.random))
    if not (n4 or n6) then return end
  end
  if not n6 then return 'n4', n4 end
  if not n4 then return 'n6', n6 end
  return 'n4', n4, 'n6', n6
end

function remove_from_arrays(t, r, p)
  local slots = call('HMGET', p.at, 'n4', 'n6')
  slots[3] = #p.endpoints >= sockets.BYTES and call('HGET', p.at, 'nw')
  if slots[1] then remove_slot(t, p.kind, '4', tonumber(slots[1]), r.pid) end
  if slots[2] then remove_slot(t, p.kind, '6', tonumber(slots[2]), r.pid) end
  if slots[3] then remove_slot(t, p.kind, 'w', tonumber(slots[3]), r.pid) end
end

-- Keeps `joiners` of a torrent right. An empty torrent that only one address or /64 ever joined is deleted earlier, and
-- one that only WebSockets joined.
function note_joiner(t, r)
  local known = t.joiners or ''
  local derived, sockets_only, address = match(known, '^(D?)(W?)(.*)$')
  if r.announced then derived = 'D' end
  if not r.on_socket then sockets_only = '' end
  if address ~= '' then
    local own = sockets.address(r.endpoint)
    own = #own == 4 and format('%d.%d.%d.%d', byte(own, 1, 4))
      or format('%02x%02x:%02x%02x:%02x%02x:%02x%02x::', byte(own, 1, 8))
    if address ~= own then address = '' end
  end
  local joiners = derived .. sockets_only .. address
  if joiners == known then return end
  if joiners == '' then call('HDEL', t.key, 'joiners') else call('HSET', t.key, 'joiners', joiners) end
end
