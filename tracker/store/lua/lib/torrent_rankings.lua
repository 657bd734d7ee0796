-- torrent_rankings.lua: ranks a torrent by its counts. After torrent.lua.

local function load_snatches(t)
  return parse_count(call('HGET', t.key, 'snatches')) or 0
end

local function write_rankings(t, tid)
  call('ZADD', P .. 'i:seeders', t.seeders, tid)
  call('ZADD', P .. 'i:leechers', t.leechers, tid)
  call('ZADD', P .. 'i:snatches', load_snatches(t), tid)
end
