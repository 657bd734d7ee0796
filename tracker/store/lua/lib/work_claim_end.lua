-- work_claim_end.lua: reads and ends claims.
--
-- A claim is in `out` (its lease), `claims` (its record), `by:<claimant>` and `holders`: in all of them or in none.
--@ include lib/leases.lua
--@ include lib/work_queues.lua
--@ include lib/work_budget.lua

-- A claim, and its record as it is stored; nil when there is none. A record that no tracker wrote is nil: then the item
-- is given back to the front of `todo`. Fails when the claim cannot be ended, or the item not be given back.
local function read_claim(name)
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  if not item then return nil end
  local record = call('HGET', W .. ':claims', name)
  local claim = record and record_of(record)
  local holders = claim and '' or call('HGET', W .. ':holders', item) or ''
  if not claim and not string.find(' ' .. holders .. ' ', ' ' .. claimant .. ' ', 1, true) then return nil end
  call('ZCARD', W .. ':by:' .. claimant)
  if not claim then return { queue = 'todo', place = '0', shared = 1 } end
  if claim.asked then check_queues(claim.asked) end
  return claim, record
end

-- Removes the claim. `holders`: who holds the item, where that was read. Returns how many others hold it.
local function end_claim(item, claimant, holders)
  local name = item .. ' ' .. claimant
  release_lease(W .. ':out', name)
  call('HDEL', W .. ':claims', name)
  call('ZREM', W .. ':by:' .. claimant, item)
  if project.verify ~= 'none' then call('ZREM', W .. ':checks', name) end
  local others = {}
  for each in string.gmatch(holders or call('HGET', W .. ':holders', item) or '', '%S+') do
    if each ~= claimant then others[#others + 1] = each end
  end
  if others[1] then
    call('HSET', W .. ':holders', item, table.concat(others, ' '))
  else
    call('HDEL', W .. ':holders', item)
  end
  return #others
end

-- The item of a claim that ended is wanted again. It goes to the queue and place that it came from, or to `queue`. An
-- item that is wanted meanwhile stays where it is.
local function give_back(item, claim, queue)
  if claim.shared and add_bounded(W .. ':wanted', item, '1') > 1 then return end
  enqueue_item(item, queue or claim.queue, tonumber(claim.place), not queue and claim.asked or nil)
end

-- Ends a claim whose claimant did not keep it. The record of a verified project's claim is kept, and looked at as
-- before: what was seeded may be verified late. Without a record of a tracker's, nothing is known against the claimant:
-- only the item is given back.
local function lapse(name)
  local claim, record = read_claim(name)
  if not claim then
    release_lease(W .. ':out', name)
    return call('HDEL', W .. ':claims', name)
  end
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  end_claim(item, claimant)
  if not record then
    give_back(item, claim)
    return count_work('repaired', '1')
  end
  give_back(item, claim, project.lapsed_to_redo == '1' and 'todo:redo' or nil)
  call('HSET', W .. ':trust', claimant, math.max(1, math.floor(budget_of(claimant) / 2)))
  call('ZADD', W .. ':lapsed', now_ms, name)
  if project.verify ~= 'none' then
    call('HSET', W .. ':lapsed:claims', name, record)
    call('ZADD', W .. ':checks', '0', name) -- next
  end
  count_work('lapsed', '1')
end

local function lapse_claims(names)
  check_types()
  for _, name in ipairs(names) do read_claim(name) end
  for _, name in ipairs(names) do lapse(name) end
end
