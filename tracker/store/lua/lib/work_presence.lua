-- work_presence.lua: what the swarm shows of a claimant: an account of the user, or a peer at an address. After
-- whole_field.lua and work_project.lua.
--
-- Both return `online` (a peer is in the swarm), `left` and `downloaded` as text, `till` (until when time was counted,
-- epoch s), `seed_time` (s), `uploaded` and `downloaded` (bytes). A key of a wrong type counts as missing: it must not
-- keep other claims from being looked at.

local function read_fields(key, ...)
  local v = redis.pcall('HMGET', key, ...)
  return v.err and {} or v
end

-- The claimant is a user, whose account on the torrent grows with each announce.
local function presence_of_user(claimant, tid)
  local v = read_fields(P .. 'u:' .. claimant .. ':t:' .. tid,
    'seed_time', 'uploaded', 'downloaded', 'left', 'until', 'peers')
  return {
    seed_time = whole_field(v[1]), uploaded = whole_field(v[2]), downloaded = whole_field(v[3]),
    left = v[4] or '', till = whole_field(v[5]), online = whole(v[6]) > 0,
  }
end
