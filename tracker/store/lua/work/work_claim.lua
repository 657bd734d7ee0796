#!lua
-- work_claim.lua: gives a claimant an item under a lease. First it ends claims whose lease ended. A refusal changes
-- nothing else, but where the next claim looks.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] claimant   ARGV[4] address   ARGV[5] its network ('': none)
-- ARGV[6]   version   ARGV[7] free bytes: larger items are passed over ('': any size)
-- ARGV[8]   max items of a queue to look at, without those that are the claimant's already   ARGV[9] max claims to end
-- ARGV[10]  '0': a user who may not download, and gets nothing but what is in its own queue
-- ARGV[11]  where the claimant seeds, in a project that verifies addresses: packed endpoint in hex digits ('': unknown)
-- ARGV[12..] with several shards: items and what is known of them (work_torrents.lua)
-- Answer    { 'claimed', name of the claim, its record (JSON), token, end of the lease (epoch ms) }; or { refusal,
--   argument }: 'blocked', 'outdated' (min_version), 'budget', 'rate' (ms to wait), 'empty'; with several shards also
--   { 'ask', items that have to be known }; nil when there is no such project
local P, call, now_ms = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/leases.lua
--@ include lib/work_queues.lua
--@ include lib/work_budget.lua
--@ include lib/work_outage.lua
--@ include lib/work_torrents.lua

-- Functions that few calls need are created when they are needed: each costs time.
local function lapse_ended(ended)
  --@ include lib/work_claim_end.lua
  lapse_claims(ended)
end

local claimant = ARGV[3]
local KEPT_OUT = 7 * 86400000 -- ms during which a torrent is not offered to who let a claim of it lapse
local PAGE, MAX_OWN = 50, 1000 -- items of a queue that are read at once, and at its head

local blocked, has_more = is_blocked(claimant, ARGV[4], ARGV[5], W .. ':todo:d:' .. claimant, W .. ':released')
if blocked then return { 'blocked' } end
if project.min_version ~= '' then
  --@ include lib/byte_order.lua
  if is_before(ARGV[6], project.min_version) then return { 'outdated', project.min_version } end
end

local held_by = W .. ':by:' .. claimant
local clock, stored_rate = lease_clock(W .. ':rate')
local ended = call('ZRANGEBYSCORE', W .. ':out', '-inf', clock, 'LIMIT', 0, ARGV[9])
if #ended > 0 then
  lapse_ended(ended)
  has_more = true -- an item may be in the own queue again
end
local held_count = call('ZCARD', held_by)
local given_back = has_more and released_ms(claimant) or 0
if held_count + given_back > 0 then
  local left = budget_of(claimant) - held_count
  if left <= 0 then return { 'budget' } end
  if given_back > (left - 1) * RELEASED_MS then return { 'rate', math.ceil(given_back - (left - 1) * RELEASED_MS) } end
end

-- GCRA with a burst of a tenth of the limit: at most `limit` claims in any 60 s, as limit + 1 of them take more. A time
-- a minute later than any that claims can lead to was written by a wrong clock.
local limit, next_ms = tonumber(project.per_minute) or 0, nil
if limit > 0 then
  local burst, last_ms = math.max(1, math.floor(limit / 10)), tonumber(stored_rate or '') or 0
  local interval = math.ceil(60001000 / (limit - burst + 1)) / 1000 -- ms; `now_ms` may be up to 1 ms early
  if last_ms > now_ms + burst * interval + 60000 then last_ms = 0 end
  local wait = last_ms - (burst - 1) * interval - now_ms
  if wait > 0 then return { 'rate', math.ceil(wait) } end
  next_ms = string.format('%.3f', math.max(last_ms, now_ms) + interval)
end

local facts = given_facts(12)
local lapsed_at, torrent, account -- of the item that was looked at last

local function is_kept_out(item, queue)
  if project.kind ~= 'seeding' and queue ~= 'todo:redo' then return false end
  lapsed_at = tonumber(call('ZSCORE', W .. ':lapsed', item .. ' ' .. claimant) or '')
  return lapsed_at and (project.kind ~= 'seeding' or lapsed_at > now_ms - KEPT_OUT)
end

-- The bytes that an item takes; nil for a torrent that the tracker does not serve, as one of a wrong type. Sets
-- `torrent`.
local function size_of(item)
  if project.kind ~= 'seeding' then return 0 end
  local fact = facts and facts[item]
  if fact and fact.unavailable then return nil end
  local registered = fact and fact.registered or call('MGET', P .. 'info_hash:' .. item, P .. 'deny:' .. item)
  torrent = fact and fact.torrent or read_fields(P .. 't:' .. item, unpack(TORRENT_FIELDS))
  if not registered[1] or registered[2] then return nil end
  if torrent[4] == nil or torrent[4] == '0' or torrent[4] == 'pending' then return nil end
  if project.verify == 'address' and torrent[5] == '1' then return nil end -- for users of this tracker only
  return whole(torrent[3])
end

-- Whether a peer seeds the torrent at the claimant's endpoint, or has claimed it to do so.
local function is_taken_there(item)
  local fact = facts and facts[item]
  if (fact and fact.kind or not fact and kind_at(item, ARGV[11])) == 's' then return true end
  for holder in string.gmatch(call('HGET', W .. ':holders', item) or '', '%S+') do
    local claim = record_of(call('HGET', W .. ':claims', item .. ' ' .. holder))
    if claim and claim.endpoint == ARGV[11] then return true end
  end
  return false
end

-- Whether a claim brings no seeder: the claimant seeds the torrent already, or its account there is of a wrong type, so
-- that its announces fail. Sets `account`.
local function is_seeding(item)
  if project.kind ~= 'seeding' then return false end
  if project.verify == 'address' then return is_taken_there(item) end
  local tid = torrent[1] or ''
  account = facts and facts[item].account
    or read_fields(P .. 'u:' .. claimant .. ':t:' .. tid, unpack(ACCOUNT_FIELDS))
  return account[4] == nil or account[4] == '0' and whole(account[6]) > 0
end

-- Of a page of a queue: the items, the copies wanted where that is counted, and which are this claimant's already.
local function read_page(queue, from, to)
  local page, items = call('ZRANGE', W .. ':' .. queue, from, to, 'WITHSCORES'), {}
  if #page == 0 then return page, items end
  local names, own = {}, {}
  for i = 1, #page, 2 do
    items[#items + 1], names[#names + 1] = page[i], page[i] .. ' ' .. claimant
  end
  local copies = call('HMGET', W .. ':wanted', unpack(items))
  if #items == 1 and not copies[1] then return page, items, copies, own end
  local held = held_count > 0 and call('ZMSCORE', held_by, unpack(items)) or {}
  local finished = call('ZMSCORE', W .. ':done:by', unpack(names))
  for i in ipairs(items) do own[i] = copies[i] and (held[i] or finished[i]) end
  return page, items, copies, own
end

local looked_at, unknown
local go_on = {} -- where the next claim looks at a queue beyond its head

-- With several shards: those of a page whose torrents are not known, but have to be. Else nil.
local function unknown_of(items, own)
  local found = {}
  for i, item in ipairs(items) do
    if not own[i] and not facts[item] then found[#found + 1] = item end
  end
  return found[1] and found
end

-- The first item between two ranks of a queue that the claimant may have: item, place, and the copies wanted where that
-- is counted; else nil and the rank to go on at, 0 for none. What is the claimant's already or cannot be seeded does
-- not count as looked at: it may fill a long queue.
local function first_between(queue, from, till)
  local room, max_looked_at = tonumber(ARGV[7]) or math.huge, tonumber(ARGV[8])
  while from < till do
    local page, items, copies, own = read_page(queue, from, from == 0 and 0 or from + PAGE - 1)
    if #items == 0 then return nil, 0 end
    unknown = facts and project.kind == 'seeding' and unknown_of(items, own)
    if unknown then return nil, 0 end
    for i, item in ipairs(items) do
      local size = not own[i] and size_of(item)
      if size and not is_seeding(item) then
        if size <= room and not is_kept_out(item, queue) then return item, page[2 * i], copies[i] end
        looked_at = looked_at + 1
        if looked_at >= max_looked_at then return nil, 0 end
      end
    end
    from = from + #items
  end
  return nil, from
end

-- The same of the head of a queue. Where nothing there is for the claimant, each of its claims looks at a further part.
local function first_of(queue)
  looked_at = 0
  local item, place, shared = first_between(queue, 0, MAX_OWN)
  if item or unknown or place == 0 then return item, place, shared end
  local field = queue .. ' ' .. claimant
  local from = math.max(MAX_OWN, whole(call('HGET', W .. ':looked', field) or ''))
  item, place, shared = first_between(queue, from, from + MAX_OWN)
  if not (item or unknown) then go_on[field] = place end
  return item, place, shared
end

local function note_looks()
  for field, rank in pairs(go_on) do
    if rank > 0 then call('HSET', W .. ':looked', field, decimal(rank)) else call('HDEL', W .. ':looked', field) end
  end
end

local queues, item, place, shared, queue = { 'todo:d:' .. claimant, 'todo', 'todo:secondary', 'todo:redo' }
for i = has_more and 1 or 2, ARGV[10] == '0' and 1 or #queues do
  queue = queues[i]
  item, place, shared = first_of(queue)
  if item or unknown then break end
end
if unknown then return { 'ask', unpack(unknown) } end
if not item then
  note_looks()
  return { 'empty' }
end

local name = item .. ' ' .. claimant
local asked = string.sub(queue, 1, 7) == 'todo:d:' and call('HGET', W .. ':asked', item) or nil
local held = call('HGET', W .. ':holders', item)
local others = project.verify ~= 'address' and torrent and torrent[1] and (torrent[2] or '0')
account = account or {}
if asked then check_queues(asked) end
-- A failed command does not undo those before it: what was not read yet fails here if it is of a wrong type, or at the
-- first write, which counts leases.
call('HLEN', W .. ':out:tokens')
call('HLEN', W .. ':claims')
if lapsed_at then call('HLEN', W .. ':lapsed:claims') end
if project.verify ~= 'none' then call('ZCARD', W .. ':checks') end
local lease_ms = 1000 * (tonumber(project.lease_seconds) or 1)
local token = take_lease(W .. ':out', name, decimal(clock + lease_ms))
note_looks()
local copies_left = whole(shared or '') - 1
if copies_left > 0 then
  call('HSET', W .. ':wanted', item, decimal(copies_left))
else
  dequeue_item(item, queue, asked, shared)
end
local record = cjson.encode({
  item = item, by = claimant, ip = ARGV[4], at = ARGV[2], queue = queue, place = place, asked = asked,
  shared = shared and 1 or nil, version = ARGV[6], state = 'claimed', seed_time = account[1] or nil,
  uploaded = account[2] or nil, downloaded = account[3] or nil, others = others or nil,
  endpoint = ARGV[11] ~= '' and ARGV[11] or nil,
  outage = now_ms ~= clock and decimal(now_ms - clock) or nil, checked = '0',
})
call('HSET', W .. ':claims', name, record)
call('ZADD', held_by, ARGV[2], item)
call('HSET', W .. ':holders', item, held and held .. ' ' .. claimant or claimant)
if lapsed_at then
  call('ZREM', W .. ':lapsed', name)
  call('HDEL', W .. ':lapsed:claims', name)
end
if others and not torrent[2] and not facts then
  call('HSET', P .. 't:' .. item, 'user_downloaded', '0') -- counted from now on
end
if project.verify ~= 'none' then call('ZADD', W .. ':checks', decimal(clock), name) end
if next_ms then call('SET', W .. ':rate', next_ms) end
count_work('claimed', '1')
return { 'claimed', name, record, token, decimal(now_ms + lease_ms) }
