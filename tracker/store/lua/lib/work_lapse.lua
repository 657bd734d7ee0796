-- work_lapse.lua: ends claims whose lease ended. After outage.lua, work_claim_end.lua, work_give_back.lua,
-- work_counts.lua and work_trust.lua; needs `now_ms` (epoch ms).
--
-- An outage extends all leases: `outage_ms` of the project is how long all outages were, and leases end on a clock that
-- stands still during outages, which is `now_ms` less `outage_ms`.

-- Adds the last outage to `outage_ms`, also when it is still going on, or was noticed earlier and went on.
local function apply_outage(fields)
  local stored = call('MGET', P .. 'gap', P .. 'heartbeat')
  local from, till = last_outage(stored[1], stored[2])
  local applied = tonumber(fields.outage_from) == from and tonumber(fields.outage_until) or from
  if till <= applied then return end
  fields.outage_from, fields.outage_until = string.format('%.0f', from), string.format('%.0f', till)
  fields.outage_ms = string.format('%.0f', (tonumber(fields.outage_ms) or 0) + 1000 * (till - applied))
  call('HSET', W, 'outage_from', fields.outage_from, 'outage_until', fields.outage_until,
    'outage_ms', fields.outage_ms)
end

local function lease_clock(fields)
  return now_ms - (tonumber(fields.outage_ms) or 0)
end

-- The record of a verified project's claim is kept: what was seeded may be verified late.
local function lapse(fields, name)
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  local claim, record = read_claim(name)
  if not claim then return release_lease(W .. ':out', name) end
  end_claim(item, claimant)
  give_back(item, claim, fields.lapsed_to_redo == '1' and 'todo:redo' or nil)
  call('HSET', W .. ':trust', claimant, math.max(1, math.floor(budget_of(fields, claimant) / 2)))
  call('ZADD', W .. ':lapsed', now_ms, name)
  if fields.verify ~= 'none' then call('HSET', W .. ':lapsed:claims', name, record) end
  count_work('lapsed', '1')
end

-- Returns how many claims lapsed, of at most `max` that were looked at.
local function lapse_ended(fields, max)
  local function ended() return call('ZRANGEBYSCORE', W .. ':out', '-inf', lease_clock(fields), 'LIMIT', 0, max) end
  if #ended() == 0 then return 0 end
  apply_outage(fields)
  local names = ended()
  for _, name in ipairs(names) do lapse(fields, name) end
  return #names
end
