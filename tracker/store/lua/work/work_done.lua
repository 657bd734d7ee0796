#!lua
-- work_done.lua: counts a finished item, once, and logs it. work_rank.lua adds it to leaderboards, charts and sums.
-- KEYS[1]   the prefix
-- ARGV[1]   project    ARGV[2] now (epoch ms)   ARGV[3] claimant      ARGV[4] address   ARGV[5] its network ('': none)
-- ARGV[6]   item       ARGV[7] token ('': not known)                  ARGV[8] version   ARGV[9] user agent
-- ARGV[10]  the claimant's id of the result
-- ARGV[11]  '1': the tracker has verified it, and also counts a claim that lapsed       ARGV[12] seconds verified
-- ARGV[13]  bytes in total                      ARGV[14] bytes by domain (JSON)
-- ARGV[15]  the domains as they are stored in the project ('': none)
-- Answer    'done', 'duplicate', 'blocked', 'unknown', 'stranger', 'unverified' or 'domains'; nil when there is no such
--   project
local P, call, project, now_ms = KEYS[1], redis.call, ARGV[1], tonumber(ARGV[2])
--@ include lib/numbers.lua
--@ include lib/leases.lua
--@ include lib/work_project.lua
--@ include lib/work_queues.lua
--@ include lib/work_record.lua
--@ include lib/work_budget.lua
--@ include lib/work_claim_end.lua
--@ include lib/work_blocked.lua

local claimant, item, verified = ARGV[3], ARGV[6], ARGV[11] == '1'
local REFUSALS_KEPT = 1000

local fields = read_project('domains', 'budget', 'start_budget')
if not fields then return nil end

if is_blocked(claimant, ARGV[4], ARGV[5]) then return 'blocked' end
local name = item .. ' ' .. claimant
local held = read_claim(name)
local late = not held and verified and record_of(call('HGET', W .. ':lapsed:claims', name))
if not held and not late then
  if call('ZSCORE', W .. ':done:by', name) then return 'duplicate' end
  local known = queue_of(item) or call('HEXISTS', W .. ':holders', item) == 1 or call('ZSCORE', W .. ':done', item)
  return known and 'stranger' or 'unknown'
end
local has_token = held and has_lease(W .. ':out', name, ARGV[7])
if held and ARGV[7] ~= '' and not has_token then return 'stranger' end
if fields.verify ~= 'none' and not verified then return 'unverified' end
local claim = held or late

if not verified and fields.domains ~= '' and fields.domains ~= ARGV[15] then
  check_types()
  call('ZCARD', W .. ':released')
  call('XLEN', W .. ':blocked:log')
  end_claim(fields, item, claimant)
  give_back(item, claim)
  note_released(claimant)
  count_work('released', '1')
  if fields.block_wrong_domains == '1' and ARGV[4] ~= '' then call('SADD', W .. ':blocked', ARGV[4]) end
  call('XADD', W .. ':blocked:log', 'MAXLEN', '~', REFUSALS_KEPT, '*', 'at', ARGV[2], 'what', 'wrong domains',
    'who', claimant, 'ip', ARGV[4], 'item', item, 'bytes', ARGV[14])
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
  'bytes', ARGV[14], 'total', ARGV[13], 'seconds', ARGV[12], 'version', ARGV[8], 'id', ARGV[10],
  'claimed', claim.at or '', 'late', late and '1' or '0')

-- A lapsed claim's copy is wanted or out again, or was done by another: then this is one more than was added.
local holders_left = 0
if held then
  holders_left = end_claim(fields, item, claimant, holders)
else
  call('HDEL', W .. ':lapsed:claims', name)
  if not queue then
    count_work('added', '1')
  elseif not call('HGET', W .. ':wanted', item) or add_bounded(W .. ':wanted', item, '-1') <= 0 then
    dequeue_item(item, queue, asked, true)
    copies_wanted = false
  end
  if holders then holders_left = 1 end
end
-- The copies of a shared item are counted as long as it is in a queue.
if holders_left == 0 and not copies_wanted then call('ZADD', W .. ':done', ARGV[2], item) end
call('ZADD', W .. ':done:by', ARGV[2], name)
if tonumber(budget_stored) ~= budget then call('HSET', W .. ':trust', claimant, budget) end
count_work('done', '1')
return 'done'
