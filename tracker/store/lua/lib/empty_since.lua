-- empty_since.lua: which torrents belong into `i:empty`. After torrent.lua.

-- When an empty torrent became empty, as a number; nil for one that `i:empty` does not list.
local function empty_since(t)
  if t.seeders + t.leechers > 0 then return nil end
  local v = call('HMGET', t.key, 'auto', 'enabled', 'empty_since')
  return v[1] == '1' and v[2] ~= '0' and v[2] ~= 'pending' and tonumber(v[3] or '') or nil
end
