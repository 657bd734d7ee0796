#!lua
-- work_done.lua: counts a finished item, once.
-- KEYS[1]   the prefix
-- ARGV[1]   project    ARGV[2] now (epoch ms)   ARGV[3] claimant      ARGV[4] address   ARGV[5] its network ('': none)
-- ARGV[6]   item       ARGV[7] token ('': not known)                  ARGV[8] version   ARGV[9] user agent
-- ARGV[10]  the claimant's id of the result     ARGV[11] month and week (YYYY-MM YYYY-Www)
-- ARGV[12]  '1': the tracker has verified it, and also counts a claim that lapsed       ARGV[13] seconds verified
-- ARGV[14]  bytes in total                      ARGV[15] bytes by domain (JSON)
-- ARGV[16]  the domains as they are stored in the project ('': none)
-- ARGV[17..] pairs of domain and bytes
-- Answer    'done', 'duplicate', 'blocked', 'unknown', 'stranger', 'unverified' or 'domains'; nil when there is no such
--   project
local P, call, project, now_ms = KEYS[1], redis.call, ARGV[1], tonumber(ARGV[2])
local now = math.floor(now_ms / 1000)
local COUNTER_MAX = '9223372036854775807' -- what Redis counts to
--@ include lib/numbers.lua
--@ include lib/counters.lua
--@ include lib/lease_check.lua
--@ include lib/lease_release.lua
--@ include lib/work_project.lua
--@ include lib/work_types.lua
--@ include lib/work_counts.lua
--@ include lib/work_queues.lua
--@ include lib/work_enqueue.lua
--@ include lib/work_dequeue.lua
--@ include lib/work_queue_of.lua
--@ include lib/work_claim_end.lua
--@ include lib/work_give_back.lua
--@ include lib/work_blocked.lua
--@ include lib/work_trust.lua
--@ include lib/work_ranking.lua

local claimant, item, periods, verified = ARGV[3], ARGV[6], ARGV[11], ARGV[12] == '1'
-- Bounds (s) of the histogram of times from claim to done; store/work/statistics.py has the same list.
local CLAIM_SECONDS = { 60, 600, 3600, 21600, 86400, 172800, 345600, 604800, 1209600 }
local CHART_SECONDS, CHART_POINTS, REFUSALS_KEPT = 600, 1000, 1000
local MAX_DOMAINS = 100
local CHART_KEPT = 400 * 86400 -- seconds after the last point

local fields = read_project('domains', 'budget', 'start_budget')
if not fields then return nil end

-- Where the project has no list of domains, claimants choose the names: then only the first MAX_DOMAINS are kept.
local function add_to_domain(domain, bytes)
  local key = W .. ':domain_bytes'
  if fields.domains == '' and redis.pcall('HEXISTS', key, domain) ~= 1 then
    local count = redis.pcall('HLEN', key)
    if type(count) ~= 'number' or count >= MAX_DOMAINS then return end
  end
  add_bounded(key, domain, bytes)
end

-- Adds whole numbers to totals: one read and one write cost less than a command for each.
local function count_several(names, numbers)
  call('ZCARD', W .. ':released')
  local totals = redis.pcall('HMGET', W .. ':totals', unpack(names))
  if totals.err then return end
  local changed = {}
  note_released(claimant)
  for i, name in ipairs(names) do
    if numbers[i] > 0 then
      changed[#changed + 1] = name
      changed[#changed + 1] = bounded(whole(totals[i]) + numbers[i])
    end
  end
  call('HSET', W .. ':totals', unpack(changed))
end

if is_blocked(claimant, ARGV[4], ARGV[5]) then return 'blocked' end
local name = item .. ' ' .. claimant
local held = read_claim(name)
local late = not held and verified and call('HGET', W .. ':lapsed:claims', name)
if not held and not late then
  if call('ZSCORE', W .. ':done:by', name) then return 'duplicate' end
  local known = queue_of(item) or call('HEXISTS', W .. ':holders', item) == 1 or call('ZSCORE', W .. ':done', item)
  return known and 'stranger' or 'unknown'
end
local has_token = held and has_lease(W .. ':out', name, ARGV[7])
if held and ARGV[7] ~= '' and not has_token then return 'stranger' end
if fields.verify ~= 'none' and not verified then return 'unverified' end
local claim = held or cjson.decode(late)

if not verified and fields.domains ~= '' and fields.domains ~= ARGV[15] then
--@ include lib/work_released.lua
--@ include lib/work_note_released.lua
  check_types()
  call('XLEN', W .. ':blocked:log')
  end_claim(fields, item, claimant)
  give_back(item, claim)
  count_work('released', '1')
  if fields.block_wrong_domains == '1' and ARGV[4] ~= '' then call('SADD', W .. ':blocked', ARGV[4]) end
  call('XADD', W .. ':blocked:log', 'MAXLEN', '~', REFUSALS_KEPT, '*', 'at', ARGV[2], 'what', 'wrong domains',
    'who', claimant, 'ip', ARGV[4], 'item', item, 'bytes', ARGV[15])
  return 'domains'
end

-- A failed command does not undo those before it: what was not read yet fails here if it is of a wrong type, or at the
-- first write, the entry of the log.
for _, index in ipairs({ ':out', ':done', ':done:by' }) do call('ZCARD', W .. index) end
local holders = call('HGET', W .. ':holders', item)
local budget, budget_stored = budget_of(fields, claimant)
budget = math.min(tonumber(fields.budget) or 1, budget + 1)
local copies_wanted = claim.shared and call('HGET', W .. ':wanted', item)
if held and fields.verify ~= 'none' then call('ZCARD', W .. ':checks') end
local queue, asked, _
if late then
  check_types()
  queue, _, asked = queue_of(item)
  if asked then check_queues(asked) end
end
call('XADD', W .. ':log', '*', 'item', item, 'by', claimant, 'ip', ARGV[4], 'ua', ARGV[9], 'at', ARGV[2],
  'bytes', ARGV[15], 'total', ARGV[14], 'seconds', ARGV[13], 'version', ARGV[8], 'id', ARGV[10],
  'claimed', claim.at or '', 'late', late and '1' or '0')

-- A lapsed claim's copy is wanted or out again, or was done by another: then this is one more than was added.
local holders_left = 0
if held then
  holders_left = end_claim(fields, item, claimant, holders)
else
  call('HDEL', W .. ':lapsed:claims', name)
  if not queue then
    count_work('added', '1')
  elseif not call('HGET', W .. ':wanted', item) or call('HINCRBY', W .. ':wanted', item, -1) <= 0 then
    dequeue_item(item, queue, asked, true)
    copies_wanted = false
  end
  if holders then holders_left = 1 end
end
-- The copies of a shared item are counted as long as it is in a queue.
if holders_left == 0 and not copies_wanted then call('ZADD', W .. ':done', ARGV[2], item) end
call('ZADD', W .. ':done:by', ARGV[2], name)
if tonumber(budget_stored) ~= budget then call('HSET', W .. ':trust', claimant, budget) end

local items, bytes, seconds = add_to_rankings(periods, claimant, ARGV[14], ARGV[13], fields.kind == 'seeding')
if ARGV[8] ~= '' then redis.pcall('HSET', W .. ':downloader_version', claimant, ARGV[8]) end
for i = 17, #ARGV, 2 do add_to_domain(ARGV[i], ARGV[i + 1]) end

-- One point for each ten minutes: the claimant's sums at its end.
local chart = W .. ':chart:' .. claimant
local slot = string.format('%.0f', now - now % CHART_SECONDS)
local point = slot .. ' ' .. items .. ' ' .. bytes .. ' ' .. seconds
local last_point = redis.pcall('LINDEX', chart, -1)
if type(last_point) == 'string' and string.match(last_point, '^%d+') == slot then
  call('LSET', chart, -1, point)
elseif type(last_point) ~= 'table' then
  if call('RPUSH', chart, point) > CHART_POINTS then call('LTRIM', chart, -CHART_POINTS, -1) end
  call('EXPIRE', chart, CHART_KEPT)
end

local took, bucket = math.max(0, math.floor((now_ms - (tonumber(claim.at) or now_ms)) / 1000)), 'more'
for i = #CLAIM_SECONDS, 1, -1 do
  if took <= CLAIM_SECONDS[i] then bucket = CLAIM_SECONDS[i] end
end
if ARGV[14] ~= '0' then count_work('bytes', ARGV[14]) end
count_several({ 'done', 'took', 'took_' .. bucket, 'seconds', 'unverified' },
  { 1, took, 1, tonumber(ARGV[13]), verified and 0 or 1 })
return 'done'
