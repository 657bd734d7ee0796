-- work_demand.lua: how many more seeders a torrent needs, and who is to be asked. After work_known.lua and
-- work_project.lua; needs `fields`, and `policy`, the project's target, min_size and max_size.
local ASKED_AT_ONCE, REQUEST_SECONDS, MAX_REQUESTS, MAX_ASKED = 3, 604800, 12, 20

local function count_of(text)
  return math.min(MAX_COUNT, math.max(0, whole(text)))
end

-- Why nobody is to be asked to seed the torrent with these fields; nil if somebody may be.
local function exclusion(ih, v)
  local registered = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  if not registered[1] or not v[1] then return 'unregistered' end
  if registered[2] then return 'denied' end
  if v[5] == '0' then return 'disabled' end
  if v[8] == '1' and fields.verify == 'address' then return 'private' end
  local labels = string.gsub(string.lower(string.sub(v[7] or '', 1, 1000)), ',', ' ')
  if string.find(' ' .. labels .. ' ', ' nowork ', 1, true) then return 'nowork' end
  if policy.min_size == 0 and policy.max_size == 0 then return nil end
  local size = string.match(v[6] or '', '^%d+$') and tonumber(v[6])
  if not size then return 'unknown size' end
  if size < policy.min_size or policy.max_size > 0 and size > policy.max_size then return 'size' end
end

-- Those of the last users who completed the torrent whose turn it is and who do not hold it, and how many users
-- completed it. Deleted users do not count.
local function completers(tid, holders, turn)
  local asked, known = {}, 0
  if fields.verify == 'address' then return asked, known end -- claimants are no users
  local uids = redis.pcall('ZRANGE', P .. 'completed:' .. tid, 0, MAX_ASKED - 1, 'REV')
  for _, uid in ipairs(uids.err and {} or uids) do
    local valid = string.match(uid, '^[1-9]%d*$') and #uid <= 15
    if valid and call('ZCOUNT', P .. 'users', uid, uid) > 0 then
      if math.floor(known / ASKED_AT_ONCE) == turn and not holders[uid] then asked[#asked + 1] = uid end
      known = known + 1
    end
  end
  return asked, known
end

-- A torrent without a seeder: three of those who completed it are asked, after a week without success the next three,
-- then everybody if peers have parts of it. `since` is when the first were asked.
local function reseed(d, tid, holders, leechers, since)
  local turn = math.floor(math.max(0, now - since) / REQUEST_SECONDS)
  if turn >= MAX_REQUESTS then since, turn = now, 0 end
  local asked, known = completers(tid, holders, turn)
  d.since = known > 0 and since or nil
  if #asked > 0 then
    d.reason, d.asked, d.copies = 'reseed request', table.concat(asked, ' '), math.min(d.copies, #asked)
  elseif leechers > 0 then
    d.reason, d.queue = 'no seeder', 'todo'
  else
    d.reason, d.copies = 'nobody to ask', 0
  end
  return d
end

-- What is to be, by `past`: the average of the torrent's seeders, and the points behind it. Returns { copies, reason,
-- average, seeders, queue or asked, base of the place, since }; nil: leave it alone.
local function demand(ih, past, since)
  local v = call('HMGET', P .. 't:' .. ih,
    'tid', 'seeders', 'leechers', 'snatches', 'enabled', 'size', 'labels', 'private')
  local seeders, leechers = count_of(v[2]), count_of(v[3])
  local excluded = exclusion(ih, v)
  if excluded then return { copies = 0, reason = excluded, average = 0, seeders = seeders } end
  if seeders + leechers == 0 and redis.pcall('ZCARD', P .. 'completed:' .. v[1]) == 0 then
    return { copies = 0, reason = 'nobody to ask', average = 0, seeders = 0 }
  end
  if not is_known(v[1], past, seeders, leechers, count_of(v[4])) then return nil end
  local average = past.average
  local holders, held = {}, 0
  for uid in string.gmatch(call('HGET', W .. ':holders', ih) or '', '%S+') do
    holders[uid], held = true, held + 1
  end
  -- Seeders of now who are no claimants count where they are more: who has finished a claim may go on seeding.
  local missing = policy.target - math.max(math.floor(average + 0.5), seeders - held) - held
  local d = { copies = math.max(0, missing), reason = 'enough', average = average, seeders = seeders }
  if missing <= 0 then return d end
  d.base = math.floor(1000 * average) - math.min(999, leechers)
  if seeders == 0 then return reseed(d, v[1], holders, leechers, since or now) end
  local urgent = average < policy.target / 2 or leechers > 0
  d.reason, d.queue = urgent and 'weak' or 'below target', urgent and 'todo' or 'todo:secondary'
  return d
end
