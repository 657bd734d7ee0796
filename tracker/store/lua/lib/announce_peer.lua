-- announce_peer.lua: reads the stored peer of an announce, and decides whether it is the same client. A fragment of
-- announce.lua, after peers.lua, ids.lua and announce_request.lua.

-- The current peer, refilled for each announce.
local peer = {}

-- Compares addresses without ports: a port may change, an address is hard to borrow.
local function address_matches(endpoints, endpoint)
  if endpoints == endpoint then return true end
  local n, size = #endpoints, #endpoint
  if n == 24 then
    return string.sub(endpoint, 1, -3) == (size == 6 and string.sub(endpoints, 1, 4) or string.sub(endpoints, 7, 22))
  end
  return n == size and string.sub(endpoints, 1, -3) == string.sub(endpoint, 1, -3)
end

-- True when the announce comes from the client of the peer at `key`, by the client's key. When one of them has no
-- key, the user decides, if there is one, for an announce over the other family of a peer that has one family.
local function has_key(key, endpoints, r)
  if r.digest == '' and r.uid == '' then return false end
  local stored = call('HGET', key, 'key')
  if r.digest ~= '' and stored then return stored == r.digest end
  return r.uid ~= '' and #endpoints < 24 and #endpoints ~= #r.endpoint
end

-- The stored peer, whether it belongs to this client (`mine`), and what the announce adds. To read a field costs a walk
-- through the hash: these fields stand first in it, and rarely needed ones are read where they are needed.
local function load_peer(tid, r)
  r.suffix = tid .. ':' .. r.pidx
  local key = P .. 'p:' .. r.suffix
  local v = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'speed_up',
    'paused', 'active', unpack(r.event == 'x' and { 'n4', 'n6', 'user_id' } or {}))
  local p, last = peer, tonumber(v[5] or '')
  local same_user = not accounts or last and (call('HGET', key, 'user_id') or '') == r.uid or false
  p.at, p.active, p.known, p.endpoints, p.stored = key, v[9] == '1', last ~= nil and same_user, v[1] or '', v
  p.same_user = same_user or not last
  p.kind, p.left, p.paused = kind_of(v[2], v[8]), v[2], v[8] or '0'
  p.total_time, p.up, p.down, p.elapsed, p.time = 0, 0, 0, 0, 0
  p.mine = same_user and (address_matches(p.endpoints, r.endpoint) or p.active and has_key(key, p.endpoints, r))
  p.taken = p.active and not p.mine or not p.same_user
  if p.known then
    p.elapsed, p.total_time = since_step_back(now - last), tonumber(v[6] or '') or 0
    p.up = max(0, r.uploaded - (tonumber(v[3] or '') or 0))
    p.down = max(0, r.downloaded - (tonumber(v[4] or '') or 0))
    if p.active and p.elapsed > 0 then
      local time = p.elapsed - time_away(now - p.elapsed)
      if time < max_gap then p.time = time end
    end
  end
  return p
end

-- The first client that announces a peer id keeps it. Another user, or a client with another key, gets an entry under a
-- derived id, which nobody can choose.
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

-- Event 'q' asks whether an announce whose reply was lost was a join; `random` is when it was sent. Nothing changes.
local function was_join(r, p)
  if not p.known or (p.active and not p.mine) then return false end
  local joined_at = call('HGET', p.at, 'rejoined') or call('HGET', p.at, 'first_announce')
  return joined_at and tonumber(joined_at) == r.random
end
