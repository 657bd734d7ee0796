#!lua flags=allow-oom
-- work_verify.lua: looks at claims of a project that verifies: notes how far each one is, and sets the end of its
-- lease. It adds little, and also works in a full store.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] seconds that a lease lasts after the last sign of life
-- ARGV[4]   '1': all who download have an account   ARGV[5] max claims, the longest unchecked first
-- ARGV[6]   only claims that were last checked before (epoch ms)
-- ARGV[7]   a claim '<item> <claimant>' to look at instead, without changing it ('': none)
-- ARGV[8]   max claims to name for a probe; '': the tracker connects to no peers
-- ARGV[9..] with several shards: the claims to look at, and what is known of their torrents (work_torrents.lua)
-- Answer    a list for each claim: name, '1' when it is done, else '0', seconds verified, seconds missing, bytes
--   uploaded; where it is to be probed, also the endpoint of the seeder ('': not found). With several shards, the first
--   call returns { 'ask', and for each claim what work_facts.lua takes }. nil when there is no such project
local P, call = KEYS[1], redis.call
local now_ms, alone = tonumber(ARGV[2]), ARGV[7] ~= '' and ARGV[7] or nil
--@ include lib/work_project.lua
--@ include lib/work_outage.lua
--@ include lib/work_torrents.lua
-- What the swarm shows of a claimant: an account of the user, or a peer at an address. Both return `online` (a peer is
-- in the swarm), `left` and `downloaded` as text, `till` (until when time was counted, epoch s), `seed_time` (s),
-- `uploaded` and `downloaded` (bytes), `mark` (a text that changes with each announce).
local MAX_FOUND = 600000 -- ms that count for a seeder that is found: a round over all claims takes no longer

-- The claimant is a user, whose account on the torrent grows with each announce. `v` has the values of ACCOUNT_FIELDS.
local function presence_of_user(v)
  return {
    seed_time = whole_field(v[1]), uploaded = whole_field(v[2]), downloaded = whole_field(v[3]),
    left = v[4] or '', till = whole_field(v[5]), online = whole(v[6]) > 0,
    mark = string.format('%s %s', v[5] or '', v[7] or ''),
  }
end

-- The claimant is at an address and port, where the claim has found a seeder for `found` ms. There is a peer of this
-- `kind` now, which announced last at `announced`. Its progress is not known: a leecher there counts as going on.
local function presence_at_address(claim, kind, announced)
  local found = whole_field(claim.found)
  local checked = whole(claim.checked)
  local since = now_ms - (checked > 0 and checked or whole(claim.at))
  if kind == 's' then found = found + math.max(0, math.min(MAX_FOUND, since)) end
  return {
    seed_time = math.floor(found / 1000), uploaded = 0, downloaded = now, found = found,
    left = kind == 's' and '0' or '', till = 0, online = kind ~= nil, mark = announced or claim.mark,
  }
end

local PROBE_EVERY = 86400000 -- ms
local STALLED = 86400000 -- ms without progress after which a download is no sign of life
local DOWNLOAD_RATE = 100 -- bytes per ms: a claim lasts as much longer as its download takes at this rate

if project.verify == 'none' then return {} end
call('ZCARD', W .. ':out')
call('HLEN', W .. ':claims')
call('HLEN', W .. ':lapsed:claims')
local clock, facts = lease_clock(), given_facts(9)
local by_address = project.verify == 'address'
-- Nothing counts before the claimant was seen to seed, not even where no time is asked for.
local needed = math.max(1, 3600 * whole_field(call('HGET', W, 'seed_hours') or '24'))

-- An account that is below what was noted was deleted and begun again.
local function grown(presence, claim, field)
  local since = whole_field(claim[field])
  return presence[field] - (presence[field] < since and 0 or since)
end

-- Notes what the claimant was seen to do. Times are on the clock of leases. A peer stays in the swarm for a while after
-- its last announce: only announces are signs of life.
local function note_presence(claim, seen)
  local announced = seen.mark ~= claim.mark and (seen.online or seen.till * 1000 > whole(claim.at))
  if not (seen.online or announced) then
    if claim.state == 'seeding' then claim.state = 'seen' end
    return
  end
  local progress = decimal(seen.downloaded) .. ' ' .. seen.left
  if progress ~= claim.progress then claim.progress, claim.moved = progress, decimal(clock) end
  claim.state = seen.online and seen.left == '0' and 'seeding' or 'seen'
  claim.mark = seen.mark
  if announced and (seen.left == '0' or clock - whole(claim.moved) < STALLED) then claim.alive = decimal(clock) end
end

-- Until the claimant is first seen, the lease is unchanged.
local function renew_lease(name, claim, size)
  local ends, days = tonumber(call('ZSCORE', W .. ':out', name)), whole(project.claim_days)
  if claim.alive then ends = whole(claim.alive) + 1000 * tonumber(ARGV[3]) end
  if days > 0 then
    ends = math.min(ends, whole(claim.at) - whole(claim.outage) + days * 86400000 + size / DOWNLOAD_RATE)
  end
  call('ZADD', W .. ':out', 'XX', decimal(ends), name)
end

-- At most what the other users of the torrent downloaded since the claim, where that is known.
local function bytes_uploaded(claim, seen, downloaded_by_all)
  local bytes = grown(seen, claim, 'uploaded')
  if ARGV[4] ~= '1' or not claim.others or not downloaded_by_all then return bytes end
  local others = whole_field(downloaded_by_all) - whole_field(claim.others) - grown(seen, claim, 'downloaded')
  return math.min(bytes, math.max(0, others))
end

-- Whether connections to peers are part of the verification.
local probes = ARGV[8] ~= '' and (project.verify == 'handshake' or project.verify == 'piece')
local probes_left = tonumber(ARGV[8]) or 0

local function is_probe_due(claim)
  return probes and not (claim.probed and now_ms - whole(claim.probed) < PROBE_EVERY)
end

local function save(name, claim, key)
  claim.checked = ARGV[2]
  call('HSET', key, name, cjson.encode(claim))
  call('ZADD', W .. ':checks', 'XX', decimal(clock), name)
end

-- A claim that ended is not looked at any longer.
local function known_claim(name)
  local claim, key = find_claim(name)
  if not claim and not alone then call('ZREM', W .. ':checks', name) end
  return claim, key
end

local function look_at(name)
  local claim, key = known_claim(name)
  if not claim then return nil end
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  local fact = facts and facts[name]
  if fact and fact.unavailable then -- until its shard is back, nothing counts against the claimant
    if alone then return nil end
    claim.alive = decimal(clock)
    if key == W .. ':claims' then renew_lease(name, claim, math.huge) end
    save(name, claim, key)
    return nil
  end
  local torrent = fact and fact.torrent or read_fields(P .. 't:' .. item, unpack(TORRENT_FIELDS))
  local tid, seen = torrent[1] or ''
  if by_address and fact then
    seen = presence_at_address(claim, fact.kind, fact.announced)
  elseif by_address then
    seen = presence_at_address(claim, kind_at(item, claim.endpoint or ''))
  else
    local account = P .. 'u:' .. claimant .. ':t:' .. tid
    seen = presence_of_user(fact and fact.account or read_fields(account, unpack(ACCOUNT_FIELDS)))
  end
  local seconds = grown(seen, claim, 'seed_time')
  local missing = math.max(0, needed - seconds)
  if not alone then
    note_presence(claim, seen)
    if key == W .. ':claims' then renew_lease(name, claim, whole_field(torrent[3])) end
    claim.found = seen.found
    save(name, claim, key)
  end
  -- The last probe must not have failed, and there must have been one.
  local done = missing == 0 and (not probes or claim.probe and claim.probe ~= 'failed')
  local row = { name, done and '1' or '0', decimal(seconds), decimal(missing),
    decimal(bytes_uploaded(claim, seen, torrent[2])) }
  if probes_left > 0 and claim.state == 'seeding' and is_probe_due(claim) then
    probes_left = probes_left - 1
    if fact then row[6] = fact.seeder or '' else row[6] = endpoint_of_seeder(item, tid, claimant) end
  end
  return row
end

local names = { alone }
if not alone then
  local before = decimal(ARGV[6] - now_ms + clock)
  names = call('ZRANGEBYSCORE', W .. ':checks', '-inf', before, 'LIMIT', 0, ARGV[5])
end
if facts and not ARGV[9] then
  local unknown = { 'ask' }
  for _, name in ipairs(names) do
    local claim = known_claim(name)
    if claim then
      local item, claimant = string.match(name, '^(.*) (%S+)$')
      local row = { item, claimant, by_address and claim.endpoint or '', is_probe_due(claim) and '1' or '' }
      for _, value in ipairs(row) do unknown[#unknown + 1] = value end
    end
  end
  return unknown[2] and unknown or {}
end
if facts then
  names = {}
  for i = 9, #ARGV, 2 do names[#names + 1] = ARGV[i] end
end
local answer = {}
for _, name in ipairs(names) do answer[#answer + 1] = look_at(name) end
return answer
