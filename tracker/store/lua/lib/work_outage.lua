-- work_outage.lua: the clock of leases. After outage.lua and work_project.lua; needs `now_ms` (epoch ms).
--
-- An outage extends all leases: `outage_ms` of the project is how long all outages were, and leases end on a clock that
-- stands still during outages, which is `now_ms` less `outage_ms`.

-- Adds the last outage to `outage_ms`, also when it is still going on, or was noticed earlier and went on. Returns the
-- value of `key`, which costs no command here.
local function apply_outage(fields, key)
  local stored = call('MGET', unpack({ P .. 'gap', P .. 'heartbeat', key }))
  local from, till = last_outage(stored[1], stored[2])
  if till == 0 then return stored[3] end
  local applied = tonumber(fields.outage_from) == from and tonumber(fields.outage_until) or from
  if till <= applied then return stored[3] end
  fields.outage_from, fields.outage_until = string.format('%.0f', from), string.format('%.0f', till)
  fields.outage_ms = string.format('%.0f', (tonumber(fields.outage_ms) or 0) + 1000 * (till - applied))
  call('HSET', W, 'outage_from', fields.outage_from, 'outage_until', fields.outage_until,
    'outage_ms', fields.outage_ms)
  return stored[3]
end

local function lease_clock(fields)
  return now_ms - (tonumber(fields.outage_ms) or 0)
end
