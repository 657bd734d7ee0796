-- read.lua: reads an announce, its torrent and its peer. Writes nothing.

-- The announce, its torrent and its peer, refilled for each announce: a new table for each is slower than filling one.
-- What is unset is false: to set a nil may count all fields of a table anew.
-- `newcomer` is a peer that starts and has no entry, as nearly every peer that starts.
local request, torrent, peer, newcomer = {}, {}, {}, {
  total_time = 0, up = 0, down = 0, elapsed = 0, time = 0, restarted = true, lower = '', again = 0, left = false,
  active = false, known = false, endpoints = '', exists = false, same_user = true, mine = false, taken = false,
  kind = 'l',
}
local EVENTS = { [99] = 'c', [67] = 'c', [112] = 'p', [113] = 'q', [115] = 's', [UPDATE] = 'u', [120] = 'x',
  [103] = 'x', [49] = 'u', [50] = 's', [51] = 'c', [52] = 'x', [53] = 'p' }
local COMPLETED_MEMBER, GONE = 67, 103 -- 'C', 'g'

function read_request(packed)
  local r, event, form, endpoint, unbounded, agent_at = request
  r.ih, r.pidx, event, form, r.want, r.timeout, r.random, r.uploaded, r.downloaded, r.left, endpoint, r.passkey, r.pid,
    r.key, unbounded, agent_at = read('<c40c40BBHI4I4sssBc0Bc0c20Bc0B', packed)
  r.event, r.may_join = EVENTS[event], event ~= COMPLETED_MEMBER
  r.endpoint, r.on_v4, r.unbounded, r.beyond = endpoint, #endpoint == 6, unbounded == 1, false
  r.form, r.on_socket, r.gone = form, form == 3, event == GONE
  r.announced, r.evicted, r.evictions, r.follows, r.counts = false, false, 0, false, false
  r.agent, r.of_v2 = #packed < agent_at and '' or sub(packed, agent_at), event < 54
  return r
end

-- What a counter has moved since the last announce, the base that the next announce counts from, the lower counter
-- ('' for none), and what the announce reports again. Announces over two families or connections may arrive in the
-- wrong order. A counter below the base counts nothing: it was late, or the client restarted its counters. The next one
-- tells which. At or above the base it counts from the base; between the two it counts from the lower counter. One that
-- repeats the lower counter tells nothing.
local function move(counter, base, lower_counter)
  local new, old, from = tonumber(counter), tonumber(base or '') or 0, tonumber(lower_counter)
  if new >= old then return new - old, counter, '', from and max(0, old - from) or 0 end
  if from and new > from then return new - from, counter, '', 0 end
  return 0, base, counter, 0, new == from
end

-- The same for both counters of an announce: bytes up and down, both bases, the field `lower` ('' for none), and what
-- of the download is reported again. The field has the lower counters and when they were announced: they hold while
-- that is the peer's last announce.
local function move_both(uploaded, downloaded, base_up, base_down, lower_text, last)
  local lower_up, lower_down, at = match(lower_text or '', '^(%d*) (%d*) (%d+)$')
  if at ~= last then lower_up, lower_down = '', '' end
  local up, down, again, repeated
  up, base_up, lower_up = move(uploaded, base_up, lower_up)
  down, base_down, lower_down, again, repeated = move(downloaded, base_down, lower_down)
  lower_text = lower_up .. lower_down ~= '' and lower_up .. ' ' .. lower_down .. ' ' .. now or ''
  return up, down, base_up, base_down, lower_text, again, repeated
end

-- Compares addresses without ports: a port may change, an address is hard to borrow.
local function address_matches(endpoints, endpoint)
  if endpoints == endpoint then return true end
  local n, size = #endpoints, #endpoint
  if n >= sockets.BYTES or size == sockets.BYTES then
    local v4, v6, socket = split_families(endpoints)
    local own = sockets.address(endpoint)
    return sockets.address(v4) == own or sockets.address(v6) == own or sockets.address(socket) == own
  elseif n == 24 then
    return sub(endpoint, 1, -3) == (size == 6 and sub(endpoints, 1, 4) or sub(endpoints, 7, 22))
  end
  return n == size and sub(endpoints, 1, -3) == sub(endpoint, 1, -3)
end

-- What a peer's hash has of the client's key.
function digest_of(key)
  return sub(redis.sha1hex(secret .. key), 1, 8)
end

-- True when the announce comes from the client of the peer at `key`, by the client's key. When one of them has no
-- key, the user decides, if there is one, for an announce over the other family of a peer that has one family.
local function has_key(key, endpoints, r)
  if r.key == '' and r.uid == '' then return false end
  local stored = call('HGET', key, 'key')
  if r.key ~= '' and stored then return stored == digest_of(r.key) end
  return r.uid ~= '' and #endpoints <= sockets.BYTES and #endpoints ~= 24 and #endpoints ~= #r.endpoint
end

-- The stored peer, whether it belongs to this client (`mine`), and what the announce adds. `taken`: the peer id belongs
-- to another client; `alone`: its user is active by the v2 half alone; `restarted`: what it downloaded before is not in
-- its counter. To read a field costs a walk through the hash: these fields stand first in it, and others are read where
-- they are needed.
local function load_peer(tid, r)
  local suffix, p, v, last, total_time, repeated = tid .. ':' .. r.pidx, peer
  local lower, paused, had_speed, alone = false, false, false, false
  local key, event = P .. 'p:' .. suffix, r.event
  r.suffix = suffix
  if event == 's' and call('EXISTS', key) == 0 then
    p = newcomer
    p.at, p.base_up, p.base_down, p.paused = key, r.uploaded, r.downloaded, '0'
    return p
  elseif event == 'x' then
    if memory > 0 then
      v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'marks', 'user_id', 'n4',
        'total_time')
      total_time = v[9]
    else
      v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'marks', 'user_id', 'n4')
    end
    p.n6 = v[1] and #v[1] ~= 6 and call('HGET', key, 'n6')
  else
    v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'marks', 'user_id',
      'total_time')
    total_time = v[8]
  end
  if v[6] == 's' then
    had_speed = true
  elseif v[6] then
    local more = call('HMGET', key, 'lower', 'paused', 'speed_up', 'active')
    lower, paused, had_speed, alone = more[1], more[2], more[3], more[4] == '2'
  end
  last = tonumber(v[5] or '')
  local endpoints, left, uploaded, downloaded = v[1], v[2], r.uploaded, r.downloaded
  local active = endpoints and true
  local same_user = not accounts or last and (v[7] or '') == r.uid or false
  local mine = same_user and (endpoints == r.endpoint or address_matches(endpoints or '', r.endpoint)
    or active and has_key(key, endpoints, r))
  p.at, p.stored, p.active, p.endpoints, p.exists, p.mine = key, v, active, endpoints or '', active or last, mine
  p.same_user, p.taken = same_user or not last, active and not mine or last and not same_user
  p.kind, p.left, p.paused = kind_of(left, paused), left, paused or '0'
  p.had_lower, p.had_speed, p.alone = lower, had_speed, alone
  p.up, p.down, p.base_up, p.base_down, p.lower, p.again, p.time = 0, 0, uploaded, downloaded, '', 0, 0
  if not (last and same_user) then
    p.known, p.total_time, p.elapsed, p.restarted = false, 0, 0, true
    return p
  end
  local elapsed, old_up, old_down = since_step_back(now - last), v[3] or '0', v[4] or '0'
  p.known, p.total_time, p.elapsed, p.restarted =
    true, total_time and tonumber(total_time) or 0, elapsed, false
  if event == 's' then
    p.up = max(0, uploaded - (tonumber(old_up) or 0))
    p.down = max(0, downloaded - (tonumber(old_down) or 0))
  elseif uploaded ~= old_up or downloaded ~= old_down or lower then
    p.up, p.down, p.base_up, p.base_down, p.lower, p.again, repeated =
      move_both(uploaded, downloaded, v[3], v[4], lower, v[5])
  end
  if downloaded ~= old_down and tonumber(downloaded) < (tonumber(old_down) or 0) then
    p.restarted = event == 's' or p.base_down ~= downloaded and not repeated
  end
  if active and elapsed > 0 then
    local time = now - elapsed < outage_until and elapsed - time_out_of_service(now - elapsed) or elapsed
    if time < max_gap then p.time = time end
  end
  return p
end

-- The first client that announces a peer id keeps it. Another user, or a client with another key, gets an entry under a
-- derived id, which no client can choose.
local function derive_id(r)
  r.announced = r.pid
  r.pidx = redis.sha1hex(secret .. r.pid .. r.uid .. ':' .. r.key)
  r.pid = to_raw(r.pidx)
end

-- The peer under its derived id, if it has an entry there although the first owner of the id has left; else the peer
-- under the announced id.
local function load_derived(tid, r, is_known)
  local pid, pidx = r.pid, r.pidx
  derive_id(r)
  local p = load_peer(tid, r)
  if p.active and p.mine or not p.active and p.known and not is_known then return p end
  r.pid, r.pidx, r.announced = pid, pidx, false
  return load_peer(tid, r)
end

-- `joiners` of a torrent: D if a peer ever had a derived id, then W if only WebSockets ever joined it, then the only
-- address or /64 that ever joined it.
function has_derived(joiners)
  return joiners and byte(joiners) == 68
end

function find_peer(r, tid, t)
  local p = load_peer(tid or '', r)
  if p.taken and (r.key ~= '' or not p.same_user) then
    derive_id(r)
    return load_peer(tid, r)
  elseif tid and not p.active and (r.key ~= '' or accounts)
      and has_derived(r.event == 'x' and call('HGET', t.key, 'joiners') or t.joiners) then
    return load_derived(tid, r, p.known)
  end
  return p
end

-- Event 'q' asks whether an announce whose reply was lost was a join; `random` is when it was sent. Nothing changes.
function was_join(r, p)
  if not p.known or (p.active and not p.mine) then return false end
  local joined_at = call('HGET', p.at, 'rejoined') or call('HGET', p.at, 'first_announce')
  return joined_at and tonumber(joined_at) == r.random
end

-- An existing swarm keeps the torrent id that its peers joined with, whatever the site writes meanwhile. A peer that
-- stops needs no `enabled`, and can be no second address of the torrent.
function load_swarm(r, registered)
  local t, v, hybrid_of, dht, enabled = torrent
  t.joiners = false
  if r.event == 'x' then
    if r.uid == '' then
      v = read_torrent(t, r.ih, 'snatches')
    else
      v = read_torrent(t, r.ih, 'snatches', 'multi_up', 'multi_dn', 'hybrid_of')
      t.multi_up, t.multi_dn, hybrid_of = v[6], v[7], v[8]
    end
  else
    if r.uid ~= '' then
      v = read_torrent(t, r.ih, unpack(field_lists.torrent_of_user))
      t.multi_up, t.multi_dn, hybrid_of, dht = v[8], v[9], v[10], v[11]
    elseif give_below > 0 then
      v = read_torrent(t, r.ih, 'snatches', 'enabled', 'joiners', 'dht')
      dht = v[8]
    else
      v = read_torrent(t, r.ih, 'snatches', 'enabled', 'joiners')
    end
    enabled, t.joiners = v[6], v[7]
  end
  r.moves_only = hybrid_of and counts_elsewhere(r.ih, hybrid_of) or false
  r.v1 = hybrid_of or false
  t.dht, t.snatches = dht or false, count_of[v[5]] or 0
  return t, t.tid and t.seeders + t.leechers > 0 and t.tid or registered, enabled
end
