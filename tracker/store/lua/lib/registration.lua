-- registration.lua: binds a torrent to an id and ranks it.
--@ include lib/torrent.lua
--@ include lib/torrent_ids.lua
--@ include lib/info_hash_index.lua

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
