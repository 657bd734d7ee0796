-- refused_torrents.lua: which torrents are refused, and has their peers removed.
--
-- `removing:torrents` lists refused torrents that have peers. A tracker removes them within seconds.

local function is_refused(ih)
  local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local enabled = redis.pcall('HGET', P .. 't:' .. ih, 'enabled')
  return not known[1] or known[2] or enabled == '0' or enabled == 'pending'
end

-- Lists the torrent if it is refused now. A list of a wrong type: the sweep removes the peers.
local function note_refusal(ih)
  if is_refused(ih) and call('EXISTS', P .. 'tpeers:' .. ih) == 1 then
    redis.pcall('SADD', P .. 'removing:torrents', ih)
  end
end
