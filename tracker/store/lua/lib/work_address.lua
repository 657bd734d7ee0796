-- work_address.lua: the peer at an endpoint. After numbers.lua, `P` and `call`.
local MAX_PEERS = 1000 -- of a kind and family that are looked at; a torrent with more is in no need

-- 's' when a seeder of the torrent has the endpoint (packed, in hex digits), 'l' when a leecher has; else nil. Then
-- when that peer announced last (epoch s).
local function kind_at(ih, endpoint)
  local packed = string.gsub(endpoint, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  local size, family = #packed, #packed == 6 and '4' or '6'
  if size == 0 then return nil end
  local counts = redis.pcall('HMGET', P .. 't:' .. ih, 's' .. family, 'l' .. family)
  for i, kind in ipairs({ 's', 'l' }) do
    local slots, swarm = math.min(MAX_PEERS, whole(counts[i])), P .. 'swarm:' .. ih .. ':'
    local peers = slots > 0 and redis.pcall('GETRANGE', swarm .. kind .. family, 0, size * slots - 1)
    local at = type(peers) == 'string' and string.find(peers, packed, 1, true)
    while at and (at - 1) % size > 0 do at = string.find(peers, packed, at + 1, true) end
    if at then
      local slot, tid = (at - 1) / size, redis.pcall('HGET', P .. 't:' .. ih, 'tid')
      local ids = swarm .. kind .. family .. 'i'
      local pid = string.gsub(call('GETRANGE', ids, 20 * slot, 20 * slot + 19), '.', function(byte)
        return string.format('%02x', string.byte(byte))
      end)
      local last = type(tid) == 'string' and redis.pcall('HGET', P .. 'p:' .. tid .. ':' .. pid, 'last_announce')
      return kind, type(last) == 'string' and last or ''
    end
  end
end
