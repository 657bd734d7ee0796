-- registration.lua: gives a torrent an id, ranks it, and releases its id.
--@ include lib/torrent.lua

-- Lists a torrent in `i:info_hash`. The score is the number of the first 13 hex digits: no more fit into it exactly.
local function index_info_hash(ih, tid)
  redis.pcall('ZADD', P .. 'i:info_hash', string.format('%.0f', tonumber(string.sub(ih, 1, 13), 16)), tid)
end

-- Removes the id from all rankings and indexes. Returns from how many rankings.
local function remove_from_rankings(tid)
  local removed = 0
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do
    removed = removed + call('ZREM', P .. 'i:' .. index, tid)
  end
  for _, index in ipairs({ 'added', 'active', 'size', 'disabled', 'pending', 'private' }) do
    redis.pcall('ZREM', P .. 'i:torrent_' .. index, tid)
  end
  redis.pcall('ZREM', P .. 'i:info_hash', tid)
  redis.pcall('ZREM', P .. 'i:empty', tid)
  redis.pcall('ZREM', P .. 'i:dht', tid)
  return removed
end

-- Deletes what belongs to the torrent's id and returns true, unless the id belongs to another torrent now.
local function release_torrent_id(t)
  local owner = call('GET', P .. 'torrent_id:' .. t.tid)
  if owner and owner ~= t.ih then return end
  call('UNLINK', P .. 'torrent_id:' .. t.tid, P .. 'history:' .. t.tid, P .. 'completed:' .. t.tid)
  remove_from_rankings(t.tid)
  return true
end

-- Fails when a ranking is of a wrong type, before the first write.
local function check_rankings()
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do
    call('ZCARD', P .. 'i:' .. index)
  end
end

-- True when the peers of another torrent still use the id. A site that assigned it twice has to wait for them.
local function is_id_taken(t, tid)
  local other = call('GET', P .. 'torrent_id:' .. tid)
  if not other or other == t.ih then return false end
  local owner = load_torrent(other)
  return owner.tid == tid and owner.seeders + owner.leechers > 0
end

-- Fields that each announce reads come first.
local OF_NEW_TORRENTS = { 'seeders', 'leechers', 'snatches', 'arrays', 'announces', 'added' }

-- Before the first peer of a swarm: writes `torrent_id:<tid>` and ranks the torrent. An id that the site changed
-- replaces the old one once the swarm is empty. Returns true when the old id was released.
local function bind_id(t, tid)
  local released
  if t.tid and t.tid ~= tid then
    local score = call('ZSCORE', P .. 'i:score', t.tid)
    released = release_torrent_id(t)
    if score then
      call('ZADD', P .. 'i:score', score, tid)
      call('ZADD', P .. 'i:processed', now, tid)
    end
  end
  if t.tid ~= tid or call('GET', P .. 'torrent_id:' .. tid) ~= t.ih then
    call('SET', P .. 'torrent_id:' .. tid, t.ih)
    local values = { arrays = '0 0', added = string.format('%d', now) }
    local fields, stored = { 'tid', tid }, call('HMGET', t.key, unpack(OF_NEW_TORRENTS))
    for i, name in ipairs(OF_NEW_TORRENTS) do
      if not stored[i] then
        fields[#fields + 1], fields[#fields + 2] = name, values[name] or '0'
      end
    end
    call('HSET', t.key, unpack(fields))
    write_rankings(t, tid)
    index_info_hash(t.ih, tid)
    t.tid = tid
  end
  return released
end

-- Registers a torrent under an id. One that the site deleted while it had peers keeps its id, unless it gets the site's
-- own. Ids of a shard are 256 apart, so that no two shards give out the same one: the id modulo 256 is the shard's
-- number.
local function register(torrent, own)
  local tid, shard = own or torrent.tid, string.match(P, ':{(%d+)%l+}:$')
  if not own and (not tid or call('GET', P .. 'torrent_id:' .. tid) ~= torrent.ih) then
    repeat
      local id = call('INCR', P .. 'torrent_id')
      tid = string.format('%.0f', shard and 256 * id + shard or id)
    until call('EXISTS', P .. 'torrent_id:' .. tid) == 0
  end
  call('SET', P .. 'info_hash:' .. torrent.ih, tid)
  return tid
end
