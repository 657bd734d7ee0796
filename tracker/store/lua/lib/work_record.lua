-- work_record.lua: reads the records of claims. After work_project.lua.
local SHARED_QUEUES = { ['todo'] = true, ['todo:secondary'] = true, ['todo:redo'] = true }

-- A record as a table; nil for one that no tracker wrote. A site may have changed it, and one claim must not hold up
-- the others.
local function record_of(text)
  local readable, claim = pcall(cjson.decode, text or '')
  if not readable or type(claim) ~= 'table' then return nil end
  for _, value in pairs(claim) do
    local kind = type(value)
    if kind ~= 'string' and not (kind == 'number' and value - value == 0) then return nil end
  end
  local place, has_queue = tonumber(claim.place), SHARED_QUEUES[claim.queue]
  if claim.asked then has_queue = string.find(claim.asked, '%S') end
  return has_queue and place and place == place and claim or nil
end
