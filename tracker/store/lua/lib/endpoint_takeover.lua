-- endpoint_takeover.lua: which peer of a swarm has an endpoint, and which peer takes it over. After
-- addresses_claim.lua, endpoint_limits.lua, leave_swarm.lua, changes.lua and accounts.lua; needs `max_in_swarm`.

-- Fails when an array is of a wrong type, before anything is written.
local function check_arrays(t, r)
  for _, family in ipairs({ r.v4 ~= '' and '4' or '6', r.v6 ~= '' and '6' or '4' }) do
    call('STRLEN', t.arrays .. r.kind .. family)
    call('STRLEN', t.arrays .. r.kind .. family .. 'i')
  end
end

-- The peer of an entry for `endpoint`; `stale` when no such peer has the endpoint.
local function load_holder(t, pid, endpoint)
  local pidx = to_hex(pid)
  local at = P .. 'p:' .. t.tid .. ':' .. pidx
  local v = call('HMGET', at, 'active', 'left', 'paused', 'n4', 'n6', 'endpoints', 'user_id')
  local v4, v6 = split_families(v[6] or '')
  local stale = v[1] ~= '1' or v4 ~= endpoint and v6 ~= endpoint
  return { pid = pid, pidx = pidx, at = at, active = v[1] == '1', stale = stale, left = v[2], paused = v[3],
    n4 = v[4], n6 = v[5], endpoints = v[6] or '', uid = v[7] or '' }
end

local function without_entry(entries, at, size)
  return string.sub(entries, 1, at - 1) .. string.sub(entries, at + size)
end

-- Adds the peer's endpoint to its network, in place of `old`, the peer's endpoint of that family ('' for none). Returns
-- nil, and sets `r.evicted` to the peers that lose the endpoint; or returns the outcome, and nothing has changed. A
-- peer that starts takes its endpoint over: it is a client with a new peer id. With accounts it has to be the same
-- user; another user's peer stays beside it. A user's peer replaces an anonymous one, whatever the event. An anonymous
-- peer never takes a user's endpoint. So a client that announces both with and without its passkey is listed once.
local function take_endpoint(t, r, old)
  local net, rest = split_endpoint(r.endpoint)
  local old_net, old_rest = split_endpoint(old)
  r.evicted = nil
  local entries = claim_network(t, net, rest, r.pid)
  if entries then
    local size, after, evicted = entry_size(net), entries, {}
    if old_net == net then
      local own = find_entry(after, size, old_rest .. r.pid)
      if own then after = without_entry(after, own, size) end
    end
    local at = find_entry(after, size, rest)
    while at do
      local holder = load_holder(t, string.sub(after, at + #rest, at + size - 1), r.endpoint)
      local same = not accounts or holder.uid == r.uid
      local yields = same and r.event == 's' or r.uid ~= '' and holder.uid == ''
      local from = at + size
      if holder.stale or holder.pid == r.pid or yields then
        after, from = without_entry(after, at, size), at
        if not holder.stale and holder.pid ~= r.pid then evicted[#evicted + 1] = holder end
      elseif same or r.uid == '' then
        return 'displaced'
      end
      at = find_entry(after, size, rest, from)
    end
    local max_here = is_unbounded(r, net) and MAX_ENTRIES or min(max_in_swarm, MAX_ENTRIES)
    if #after >= #entries and (r.beyond or #after >= max_here * size) then
      if not is_local(net) or bound_local then return 'over' end
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
  if old ~= '' and old_net ~= net then remove_address(t, old, r.pid) end
end

-- Removes a peer from the swarm. `endpoints` are those whose entries are to be removed too.
local function drop_holder(t, holder, endpoints)
  leave_swarm(t, holder.pid, holder.pidx, holder.left, holder.paused, holder.n4, holder.n6, endpoints)
  record_removal('replaced', t, holder.pidx, holder.uid, holder.left)
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
local function evict(t, r)
  local removed = 0
  for _, holder in ipairs(r.evicted or {}) do
    local v4, v6 = split_families(holder.endpoints)
    local family, slot, other = '4', holder.n4, v6
    if #r.endpoint == 18 then family, slot, other = '6', holder.n6, v4 end
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
