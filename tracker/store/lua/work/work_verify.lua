#!lua flags=allow-oom
-- work_verify.lua: looks at claims of a project that verifies: notes how far each one is, and sets the end of its
-- lease. It adds little, and also works in a full store.
-- KEYS[1]   the prefix
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] seconds that a lease lasts after the last sign of life
-- ARGV[4]   '1': everybody who downloads has an account
-- ARGV[5]   max claims, the longest unchecked first
-- ARGV[6]   only claims that were last checked before (epoch ms)
-- ARGV[7]   a claim '<item> <claimant>' to look at instead, without changing it ('': none)
-- ARGV[8]   max claims to name for a probe; '': the tracker connects to no peers
-- Answer    a list for each claim: name, '1' when it is done, else '0', seconds verified, seconds missing, bytes
--   uploaded; where it is to be probed, also the endpoint of the seeder ('': not found). nil when there is no such
--   project
local P, call, project = KEYS[1], redis.call, ARGV[1]
local now_ms, alone = tonumber(ARGV[2]), ARGV[7] ~= '' and ARGV[7] or nil
local now = math.floor(now_ms / 1000)
--@ include lib/max_exact.lua
--@ include lib/numbers.lua
--@ include lib/whole_field.lua
--@ include lib/outage.lua
--@ include lib/work_project.lua
--@ include lib/work_outage.lua
--@ include lib/work_address.lua
--@ include lib/work_presence.lua
--@ include lib/work_endpoint.lua
--@ include lib/work_record.lua
--@ include lib/work_find_claim.lua

local PROBE_EVERY = 86400000 -- ms
local STALLED = 86400000 -- ms without progress after which a download is no sign of life
local DOWNLOAD_RATE = 100 -- bytes per ms: a claim lasts as much longer as its download takes at this rate

local fields = read_project()
if not fields then return nil end
if fields.verify == 'none' then return {} end
call('ZCARD', W .. ':out')
call('HLEN', W .. ':claims')
call('HLEN', W .. ':lapsed:claims')
apply_outage(fields)
local clock = lease_clock(fields)
-- Nothing counts before the claimant was seen to seed, not even where no time is asked for.
local needed = math.max(1, 3600 * whole_field(call('HGET', W, 'seed_hours') or '24'))

-- An account that is below what was noted was deleted and begun again.
local function grown(presence, claim, field)
  local since = whole_field(claim[field])
  return presence[field] - (presence[field] < since and 0 or since)
end

-- Notes what the claimant was seen to do. Times are on the clock of leases.
local function note_presence(claim, seen)
  local announced = seen.till ~= claim.till and seen.till * 1000 > whole(claim.at)
  if not (seen.online or announced) then
    if claim.state == 'seeding' then claim.state = 'seen' end
    return
  end
  local progress = decimal(seen.downloaded) .. ' ' .. seen.left
  if progress ~= claim.progress then claim.progress, claim.moved = progress, decimal(clock) end
  claim.state = seen.online and seen.left == '0' and 'seeding' or 'seen'
  claim.till = seen.till
  if seen.left == '0' or clock - whole(claim.moved) < STALLED then claim.alive = decimal(clock) end
end

-- Before the claimant was seen, the lease of the claim stays as it is.
local function renew_lease(name, claim, size)
  local ends, days = tonumber(call('ZSCORE', W .. ':out', name)), whole(fields.claim_days)
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
local probes = ARGV[8] ~= '' and (fields.verify == 'handshake' or fields.verify == 'piece')
local probes_left = tonumber(ARGV[8]) or 0

-- The endpoint to probe; nil when it is too early, or there are enough.
local function endpoint_to_probe(claim, item, tid, claimant)
  if not probes or probes_left == 0 or claim.state ~= 'seeding' then return nil end
  if claim.probed and now_ms - whole(claim.probed) < PROBE_EVERY then return nil end
  probes_left = probes_left - 1
  return endpoint_of_seeder(item, tid, claimant)
end

-- The last probe must not have failed, and there must have been one.
local function is_done(claim, missing)
  return missing == 0 and (not probes or claim.probe and claim.probe ~= 'failed')
end

local function look_at(name)
  local claim, key = find_claim(name)
  if not claim then
    if not alone then call('ZREM', W .. ':checks', name) end
    return nil
  end
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  local torrent = read_fields(P .. 't:' .. item, 'tid', 'size', 'user_downloaded')
  local by_address = fields.verify == 'address'
  local seen = by_address and presence_at_address(claim, item) or presence_of_user(claimant, torrent[1] or '')
  local seconds = grown(seen, claim, 'seed_time')
  local missing = math.max(0, needed - seconds)
  if not alone then
    note_presence(claim, seen)
    if key == W .. ':claims' then renew_lease(name, claim, whole_field(torrent[2])) end
    claim.checked, claim.found = ARGV[2], seen.found
    call('HSET', key, name, cjson.encode(claim))
    call('ZADD', W .. ':checks', 'XX', ARGV[2], name)
  end
  local row = { name, is_done(claim, missing) and '1' or '0', decimal(seconds), decimal(missing),
    decimal(bytes_uploaded(claim, seen, torrent[3])) }
  row[6] = endpoint_to_probe(claim, item, torrent[1] or '', claimant)
  return row
end

local names = { alone }
if not alone then names = call('ZRANGEBYSCORE', W .. ':checks', '-inf', ARGV[6], 'LIMIT', 0, ARGV[5]) end
local answer = {}
for _, name in ipairs(names) do answer[#answer + 1] = look_at(name) end
return answer
