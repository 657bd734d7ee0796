-- work_claim_end.lua: reads and ends claims. After lease_release.lua, work_queues.lua and work_record.lua.
--
-- A claim is in `out` (its lease), `claims` (its record), `by:<claimant>` and `holders`: in all of them or in none.

local function is_held(item, claimant)
  for each in string.gmatch(call('HGET', W .. ':holders', item) or '', '%S+') do
    if each == claimant then return true end
  end
  return false
end

-- A claim, and its record as it is stored; nil when there is none. A record that no tracker wrote is nil: then the item
-- is given back to the front of `todo`. Fails when the claim cannot be ended, or the item not be given back.
local function read_claim(name)
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  if not item then return nil end
  local record = call('HGET', W .. ':claims', name)
  local claim = record and record_of(record)
  if not claim and not is_held(item, claimant) then return nil end
  call('ZCARD', W .. ':by:' .. claimant)
  if not claim then return { queue = 'todo', place = '0', shared = 1 } end
  if claim.asked then check_queues(claim.asked) end
  return claim, record
end

-- `holders`: who holds the item. Returns how many others do.
local function remove_holder(item, claimant, holders)
  local rest = {}
  for each in string.gmatch(holders or '', '%S+') do
    if each ~= claimant then rest[#rest + 1] = each end
  end
  if #rest > 0 then
    call('HSET', W .. ':holders', item, table.concat(rest, ' '))
  else
    call('HDEL', W .. ':holders', item)
  end
  return #rest
end

-- Removes the claim. `holders`: who holds the item, where that was read. Returns how many others hold it.
local function end_claim(fields, item, claimant, holders)
  local name = item .. ' ' .. claimant
  release_lease(W .. ':out', name)
  call('HDEL', W .. ':claims', name)
  call('ZREM', W .. ':by:' .. claimant, item)
  if fields.verify ~= 'none' then call('ZREM', W .. ':checks', name) end
  return remove_holder(item, claimant, holders or call('HGET', W .. ':holders', item))
end
