-- refused_torrents.lua: has the peers of a refused torrent removed.
--
-- `removing:torrents` lists refused torrents that have peers. A tracker removes them within seconds.

--@ include lib/torrent_refusal.lua

-- Lists the torrent if it is refused now. A list of a wrong type: the sweep removes the peers.
local function note_refusal(ih)
  if is_refused(ih) and call('EXISTS', P .. 'tpeers:' .. ih) == 1 then
    redis.pcall('SADD', P .. 'removing:torrents', ih)
  end
end
