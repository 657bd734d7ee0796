-- new_torrent_id.lua: registers a torrent under an id.
--@ include lib/torrent.lua

-- Ids of a shard are 256 apart, so that no two shards give out the same one: the id modulo 256 is the shard's number.
local function next_torrent_id()
  local id, shard = call('INCR', P .. 'torrent_id'), string.match(P, ':{(%d+)%l+}:$')
  return string.format('%.0f', shard and 256 * id + shard or id)
end

-- A torrent that the site deleted while it had peers keeps its id, unless it gets the site's own.
local function register(torrent, own)
  local tid = own or torrent.tid
  if not own and (not tid or call('GET', P .. 'torrent_id:' .. tid) ~= torrent.ih) then
    repeat
      tid = next_torrent_id()
    until call('EXISTS', P .. 'torrent_id:' .. tid) == 0
  end
  call('SET', P .. 'info_hash:' .. torrent.ih, tid)
  return tid
end
