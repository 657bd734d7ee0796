#!lua
-- work_done.lua: counts a finished item, once, and logs it. work_rank.lua adds it to leaderboards, charts and sums.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] claimant   ARGV[4] address   ARGV[5] its network ('': none)
-- ARGV[6]   item   ARGV[7] token ('': not known)   ARGV[8] version   ARGV[9] user agent
-- ARGV[10]  the claimant's id of the result   ARGV[11] '1': the tracker has verified it   ARGV[12] seconds verified
-- ARGV[13]  bytes in total   ARGV[14] bytes by domain (JSON)
-- ARGV[15]  the domains as they are stored in the project ('': none)
-- Answer    'done', 'duplicate', 'blocked', 'unknown', 'stranger', 'unverified', 'domains'; nil without such a project
local P, call, now_ms = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/work_claim_end.lua

local claimant, item, verified = ARGV[3], ARGV[6], ARGV[11] == '1'
local REFUSALS_KEPT = 1000

if is_blocked(claimant, ARGV[4], ARGV[5]) then return 'blocked' end
local name = item .. ' ' .. claimant
local held = read_claim(name)
local claim, lapsed, queue, asked, holders, _ = held
if not claim then
  -- A claim that lapsed counts while a copy of the item is left. In kind `items` so does any report without a token, as
  -- in the protocol of 2012.
  claim = verified and record_of(call('HGET', W .. ':lapsed:claims', name))
  if not claim and call('ZSCORE', W .. ':done:by', name) then return 'duplicate' end
  lapsed = call('ZSCORE', W .. ':lapsed', name)
  queue, _, asked = queue_of(item)
  holders = call('HGET', W .. ':holders', item)
  if not claim and project.verify == 'none' and (queue or holders) then
    local by_name = project.kind == 'items' and project.passkeys ~= '1'
    claim = (lapsed or by_name and ARGV[7] == '') and {}
  end
  if not claim then return (queue or holders or call('ZSCORE', W .. ':done', item)) and 'stranger' or 'unknown' end
elseif not has_lease(W .. ':out', name, ARGV[7]) and ARGV[7] ~= '' then
  return 'stranger'
end
if project.verify ~= 'none' and not verified then return 'unverified' end

if not verified and project.domains ~= '' and project.domains ~= ARGV[15] then
  check_types()
  call('ZCARD', W .. ':released')
  call('XLEN', W .. ':blocked:log')
  if held then
    end_claim(item, claimant)
    give_back(item, claim)
    note_released(claimant)
    count_work('released', '1')
  end
  if project.block_wrong_domains == '1' and ARGV[4] ~= '' then call('SADD', W .. ':blocked', ARGV[4]) end
  call('XADD', W .. ':blocked:log', 'MAXLEN', '~', REFUSALS_KEPT, '*', 'at', ARGV[2], 'what', 'wrong domains',
    'who', claimant, 'ip', ARGV[4], 'item', item, 'bytes', ARGV[14])
  return 'domains'
end

-- A failed command does not undo those before it: what was not read yet fails here if it is of a wrong type, or at the
-- first write, the entry of the log.
for _, index in ipairs({ ':out', ':done', ':done:by' }) do call('ZCARD', W .. index) end
holders = holders or call('HGET', W .. ':holders', item)
local budget, budget_stored = budget_of(claimant)
if held then
  budget = budget + 1
elseif lapsed then
  budget = 2 * budget + 1 -- the lapse has halved it
end
budget = math.min(tonumber(project.budget) or 1, budget)
local last_holder = string.match(holders or '', '%S+$')
local open -- whether a copy of the item is still wanted or out
if held then
  open = claim.shared and call('HGET', W .. ':wanted', item) -- counted as long as the item is in a queue
  if project.verify ~= 'none' then call('ZCARD', W .. ':checks') end
else
  check_types()
  if asked then check_queues(asked) end
  if last_holder then read_claim(item .. ' ' .. last_holder) end
end
call('XADD', W .. ':log', '*', 'item', item, 'by', claimant, 'ip', ARGV[4], 'ua', ARGV[9], 'at', ARGV[2],
  'bytes', ARGV[14], 'total', ARGV[13], 'seconds', ARGV[12], 'version', ARGV[8], 'id', ARGV[10],
  'claimed', claim.at or '', 'late', held and '0' or '1')

if held then
  open = end_claim(item, claimant, holders) > 0 or open
else
  call('ZREM', W .. ':lapsed', name)
  call('HDEL', W .. ':lapsed:claims', name)
  open = holders
  if queue and call('HGET', W .. ':wanted', item) and add_bounded(W .. ':wanted', item, '-1') > 0 then
    open = true
  elseif queue then
    dequeue_item(item, queue, asked, true)
  elseif last_holder and not verified then -- who got the copy last need not go on
    open = end_claim(item, last_holder, holders) > 0
  else -- another has this copy, or has finished it: then this is one more than was added
    count_work('added', '1')
  end
end
if not open then call('ZADD', W .. ':done', ARGV[2], item) end
call('ZADD', W .. ':done:by', ARGV[2], name)
if tonumber(budget_stored) ~= budget then call('HSET', W .. ':trust', claimant, budget) end
count_work('done', '1')
return 'done'
