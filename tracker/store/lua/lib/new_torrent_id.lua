-- new_torrent_id.lua: registers a torrent under an id. After torrent.lua.

-- A torrent that the site deleted while it had peers keeps its id.
local function register(torrent)
  local tid = torrent.tid
  if not tid or call('GET', P .. 'torrent_id:' .. tid) ~= torrent.ih then
    repeat
      tid = string.format('%.0f', call('INCR', P .. 'torrent_id'))
    until call('EXISTS', P .. 'torrent_id:' .. tid) == 0
  end
  call('SET', P .. 'info_hash:' .. torrent.ih, tid)
  return tid
end
