-- work_record.lua: reads the records of claims.
--@ include lib/work_project.lua

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

-- The record of a claim that is out, or of one that lapsed, and the key that holds it.
local function find_claim(name)
  if not string.find(name, ' %S+$') then return nil end
  for _, key in ipairs({ W .. ':claims', W .. ':lapsed:claims' }) do
    local claim = record_of(call('HGET', key, name))
    if claim then return claim, key end
  end
end
