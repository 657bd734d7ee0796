-- work_undrained.lua: what of a log was not drained. After `call`.

local function parts_of(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

-- Whether an id of a stream comes before another.
local function is_earlier(id, other)
  local ms, number = parts_of(id)
  local other_ms, other_number = parts_of(other)
  return ms < other_ms or ms == other_ms and number < other_number
end

-- The id after which nothing was drained, or the first one that was read but not acknowledged; nil without a group.
local function first_undrained(log)
  local first
  local function note(id)
    if not first or is_earlier(id, first) then first = id end
  end
  for _, group in ipairs(call('XINFO', 'GROUPS', log)) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    note(fields['last-delivered-id'])
    local pending = call('XPENDING', log, fields.name)
    if pending[2] then note(pending[2]) end
  end
  return first
end
