-- read.lua: reads an announce, its torrent and its peer. Writes nothing.

-- The announce and its peer, refilled for each announce: a new table for each is slower than filling one.
local request, peer = {}, {}
local COMPLETED_MEMBER = 67 -- 'C'

function read_request(packed)
  local r, event, form = request
  r.ih, r.pidx, event, form, r.want, r.timeout, r.random, r.uploaded, r.downloaded, r.left, r.endpoint, r.passkey,
    r.pid, r.digest, r.unbounded = read('<c40c40BBHI4I4sssBc0Bc0c20Bc0B', packed)
  r.event, r.with_ids, r.may_join = string.lower(string.char(event)), form == 1, event ~= COMPLETED_MEMBER
  r.own_family = form == 2
  r.on_v4, r.unbounded, r.beyond = #r.endpoint == 6, r.unbounded == 1, false
  r.announced, r.evicted, r.evictions = nil, nil, 0
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
  if n == 24 then
    return sub(endpoint, 1, -3) == (size == 6 and sub(endpoints, 1, 4) or sub(endpoints, 7, 22))
  end
  return n == size and sub(endpoints, 1, -3) == sub(endpoint, 1, -3)
end

-- True when the announce comes from the client of the peer at `key`, by the client's key. When one of them has no
-- key, the user decides, if there is one, for an announce over the other family of a peer that has one family.
local function has_key(key, endpoints, r)
  if r.digest == '' and r.uid == '' then return false end
  local stored = call('HGET', key, 'key')
  if r.digest ~= '' and stored then return stored == r.digest end
  return r.uid ~= '' and #endpoints < 24 and #endpoints ~= #r.endpoint
end

-- The stored peer, whether it belongs to this client (`mine`), and what the announce adds. `taken`: the peer id belongs
-- to another client; `restarted`: what it downloaded before is not in its counter. To read a field costs a walk through
-- the hash: these fields stand first in it, and rarely needed ones are read where they are needed.
local function load_peer(tid, r)
  local p, v, last, repeated = peer
  r.suffix = tid .. ':' .. r.pidx
  local key = P .. 'p:' .. r.suffix
  p.at, p.total_time, p.up, p.down, p.elapsed, p.time, p.restarted = key, 0, 0, 0, 0, 0, true
  p.base_up, p.base_down, p.lower, p.again = r.uploaded, r.downloaded, '', 0
  if r.event == 's' and call('EXISTS', key) == 0 then -- nearly every peer that starts is new
    p.active, p.known, p.endpoints, p.stored, p.exists, p.same_user, p.mine, p.taken, p.kind, p.left, p.paused =
      false, false, '', nil, false, true, false, false, 'l', false, '0'
    return p
  elseif r.event == 'x' then
    v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'speed_up',
      'lower', 'paused', 'active', 'user_id', 'n4', 'n6')
  else
    v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'speed_up',
      'lower', 'paused', 'active', 'user_id')
  end
  last = tonumber(v[5] or '')
  local active, endpoints, paused = v[10] == '1', v[1] or '', v[9] or '0'
  local same_user = not accounts or last and (v[11] or '') == r.uid or false
  local known = last ~= nil and same_user
  local mine = same_user and (address_matches(endpoints, r.endpoint) or active and has_key(key, endpoints, r))
  p.active, p.known, p.endpoints, p.stored, p.exists = active, known, endpoints, v, v[1] or last or v[10]
  p.same_user, p.mine, p.taken = same_user or not last, mine, active and not mine or last and not same_user
  p.kind, p.left, p.paused = kind_of(v[2], paused), v[2], paused
  if not known then return p end
  p.elapsed, p.total_time = since_step_back(now - last), v[6] and tonumber(v[6]) or 0
  if r.event == 's' then
    p.up = max(0, r.uploaded - (tonumber(v[3] or '') or 0))
    p.down = max(0, r.downloaded - (tonumber(v[4] or '') or 0))
  elseif r.uploaded ~= (v[3] or '0') or r.downloaded ~= (v[4] or '0') or v[8] then
    p.up, p.down, p.base_up, p.base_down, p.lower, p.again, repeated =
      move_both(r.uploaded, r.downloaded, v[3], v[4], v[8], v[5])
  end
  p.restarted = r.downloaded ~= (v[4] or '0') and tonumber(r.downloaded) < (tonumber(v[4] or '') or 0)
    and (r.event == 's' or p.base_down ~= r.downloaded and not repeated)
  if active and p.elapsed > 0 then
    local time = p.elapsed - time_out_of_service(now - p.elapsed)
    if time < rules.max_gap then p.time = time end
  end
  return p
end

-- The first client that announces a peer id keeps it. Another user, or a client with another key, gets an entry under a
-- derived id, which no client can choose.
local function derive_id(r)
  r.announced = r.pid
  r.pidx = redis.sha1hex((call('GET', P .. 'secret') or '') .. r.pid .. r.uid .. ':' .. r.digest)
  r.pid = to_raw(r.pidx)
end

-- The peer under its derived id, if it has an entry there although the first owner of the id has left; else the peer
-- under the announced id.
local function load_derived(tid, r, is_known)
  local pid, pidx = r.pid, r.pidx
  derive_id(r)
  local p = load_peer(tid, r)
  if p.active and p.mine or not p.active and p.known and not is_known then return p end
  r.pid, r.pidx, r.announced = pid, pidx, nil
  return load_peer(tid, r)
end

function find_peer(r, tid, derived)
  local p = load_peer(tid or '', r)
  if p.taken and (r.digest ~= '' or not p.same_user) then
    derive_id(r)
    return load_peer(tid, r)
  elseif derived and tid and not p.active and (r.digest ~= '' or accounts) then
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
  local t, snatches, derived, enabled, sole, multi_up, multi_dn, hybrid_of, dht
  if r.uid ~= '' then
    t, snatches, derived, enabled, sole, multi_up, multi_dn, hybrid_of, dht =
      load_torrent(r.ih, unpack(field_lists.torrent_of_user))
    t.multi_up, t.multi_dn = multi_up, multi_dn
  elseif r.event == 'x' then
    t, snatches, derived = load_torrent(r.ih, 'snatches', 'derived')
  else
    t, snatches, derived, enabled, sole, dht = load_torrent(r.ih, unpack(field_lists.torrent))
  end
  r.moves_only = hybrid_of and counts_elsewhere(r.ih, hybrid_of) or false
  t.dht = dht
  t.snatches, t.sole = parse_count(snatches) or 0, sole
  return t, t.tid and t.seeders + t.leechers > 0 and t.tid or registered, enabled, derived
end
