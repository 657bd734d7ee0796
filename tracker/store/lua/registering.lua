-- registering.lua: torrents that register themselves, and the way back from a torrent id. A fragment for
-- announce.lua, after swarm.lua.

-- Open mode: room for one more torrent from this address? An IPv6 address counts by its /64.
local function may_register(endpoint, most_torrents, most_per_hour)
  if call('ZCARD', P .. 'i:seeders') >= most_torrents then return false, 'too many torrents' end
  local key = P .. 'registered_by:' .. (#endpoint == 6 and string.format('%d.%d.%d.%d', string.byte(endpoint, 1, 4))
    or string.format('%02x%02x:%02x%02x:%02x%02x:%02x%02x::', string.byte(endpoint, 1, 8)))
  if (tonumber(call('GET', key) or '') or 0) >= most_per_hour then return false, 'too many new torrents' end
  if call('INCR', key) == 1 then call('EXPIRE', key, 3600) end
  return true
end

-- A torrent the site forgot while it had peers keeps its id.
local function register(t)
  local tid = t.tid
  if not tid or call('GET', P .. 'torrent_id:' .. tid) ~= t.ih then
    repeat tid = decimal(call('INCR', P .. 'torrent_id')) until call('EXISTS', P .. 'torrent_id:' .. tid) == 0
  end
  call('SET', P .. 'info_hash:' .. t.ih, tid)
  call('HSET', t.key, 'auto', '1')
  return tid
end

-- An id that the peers of another torrent still need: whoever gave it out twice has to wait for them.
local function id_taken(t, tid)
  local other = call('GET', P .. 'torrent_id:' .. tid)
  if not other or other == t.ih then return false end
  local there = load(other)
  return there.tid == tid and there.seeders + there.leechers > 0
end

-- Before the first peer of a swarm: the way back from the id, and a place in the rankings. An id that the site
-- changed is taken over once the swarm is empty.
local function bind(t, tid)
  if t.tid and t.tid ~= tid then
    local score = call('ZSCORE', P .. 'i:score', t.tid)
    release_id(t)
    if score then
      call('ZADD', P .. 'i:score', score, tid)
      call('ZADD', P .. 'i:processed', now, tid)
    end
  end
  if t.tid ~= tid or call('GET', P .. 'torrent_id:' .. tid) ~= t.ih then
    call('SET', P .. 'torrent_id:' .. tid, t.ih)
    call('HSET', t.key, 'tid', tid)
    call('ZADD', P .. 'i:seeders', t.seeders, tid)
    call('ZADD', P .. 'i:leechers', t.leechers, tid)
    call('ZADD', P .. 'i:snatches', snatches_of(t), tid)
    list_hash(t.ih, tid)
    t.tid = tid
  end
end

-- Torrents that somebody registered or joined are scored from now on: new ones, and those that had dropped out.
local function rank(tids)
  if #tids == 0 then return end
  local scores, times = {}, {}
  for i, tid in ipairs(tids) do
    scores[2 * i - 1], scores[2 * i] = 1, tid
    times[2 * i - 1], times[2 * i] = now, tid
  end
  call('ZADD', P .. 'i:score', 'NX', unpack(scores))
  call('ZADD', P .. 'i:processed', 'NX', unpack(times))
end
