-- new_torrents.lua: torrents that register themselves (open mode). A fragment of announce.lua, after registration.lua
-- and torrent_save.lua.

-- A torrent id was released in this call: save_rankings() must not rank it again.
local function drop_rank(tid)
  rankings.seeders.scores[tid], rankings.leechers.scores[tid] = nil, nil
end

-- An IPv4 address, or the /64 of an IPv6 address, as text.
local function address_text(endpoint)
  if #endpoint == 6 then return string.format('%d.%d.%d.%d', string.byte(endpoint, 1, 4)) end
  return string.format('%02x%02x:%02x%02x:%02x%02x:%02x%02x::', string.byte(endpoint, 1, 8))
end

-- Registers a torrent at the first announce of it, by its endpoint. Returns its id, or nil and the reason of a refusal.
-- The functions for it are created here, as most joins are to registered torrents.
local function register_itself(...)
--@ include lib/new_torrent_id.lua
--@ include lib/registration_limits.lua
  return register_within_limits(...)
end

-- `sole` is the only address or /64 that ever joined the torrent. An empty torrent without it is kept longer. The field
-- is written after the counts, which each announce reads.
local function save_sole_address(t)
  if t.first then call('HSET', t.key, 'sole', t.first) end
end

local function drop_sole_address(t, endpoint)
  if t.sole and t.sole ~= address_text(endpoint) then
    call('HDEL', t.key, 'sole')
    t.sole = false
  end
end
