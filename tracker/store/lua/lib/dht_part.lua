-- dht_part.lua: whether a torrent takes part in the DHT.

-- `registered`, `denied`: the values of the torrent's two keys. `private`, `enabled`: its fields. `all`: torrents take
-- part that are not known to be private, registered or not; else only registered ones that are known to be public.
local function takes_part(registered, denied, private, enabled, all)
  if denied or private == '1' or enabled == '0' or enabled == 'pending' then return false end
  return all or (registered and private == '0') and true or false
end
