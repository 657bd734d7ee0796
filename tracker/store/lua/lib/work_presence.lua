-- work_presence.lua: what the swarm shows of a claimant: an account of the user, or a peer at an address. After
-- numbers.lua and work_project.lua; needs `now` (epoch s) and `now_ms`.
--
-- Both return `online` (a peer is in the swarm), `left` and `downloaded` as text, `till` (until when time was counted,
-- epoch s), `seed_time` (s), `uploaded` and `downloaded` (bytes).

local MAX_FOUND = 600000 -- ms that count for a seeder that is found: a round over all claims takes no longer

-- The claimant is a user, whose account on the torrent grows with each announce. `v` has the values of ACCOUNT_FIELDS.
local function presence_of_user(v)
  return {
    seed_time = whole_field(v[1]), uploaded = whole_field(v[2]), downloaded = whole_field(v[3]),
    left = v[4] or '', till = whole_field(v[5]), online = whole(v[6]) > 0,
  }
end

-- The claimant is at an address and port, where the claim has found a seeder for `found` ms. There is a peer of this
-- `kind` now. Its progress is not known, so a leecher that is there counts as one that goes on.
local function presence_at_address(claim, kind)
  local found = whole_field(claim.found)
  local checked = whole(claim.checked)
  local since = now_ms - (checked > 0 and checked or whole(claim.at))
  if kind == 's' then found = found + math.max(0, math.min(MAX_FOUND, since)) end
  return {
    seed_time = math.floor(found / 1000), uploaded = 0, downloaded = now, found = found,
    left = kind == 's' and '0' or '', till = 0, online = kind ~= nil,
  }
end
