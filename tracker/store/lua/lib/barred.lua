-- barred.lua: which peers may not stay in a swarm: those of a refused torrent, of a denied client, and of a disabled or
-- deleted user. After torrent_refusal.lua, barred_users.lua, denied_clients.lua and swarm.lua; needs `denied`, the
-- prefixes of denied clients in hex.
local is_client_denied, refused_torrents = new_client_check(denied), {}

local function is_barred(t, pidx)
  local refused = refused_torrents[t.ih]
  if refused == nil then
    refused = is_refused(t.ih)
    refused_torrents[t.ih] = refused
  end
  if refused then return true end
  local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'user_id', 'peer_id')
  if p[1] and is_user_barred(p[1]) then return true end
  return is_client_denied and is_client_denied(p[2] and to_hex(p[2]) or pidx)
end
