-- work_project.lua: a project of work, its keys, who is blocked there, and the records of its claims. ARGV[1] of the
-- script is the name of the project. When there is no such project, or it is being deleted, the script ends here.
--
-- All keys of a project begin with W. A queue is named by its key after W: 'todo', 'todo:secondary', 'todo:redo', or
-- 'todo:d:<claimant>', a claimant's own. A claim is named '<item> <claimant>'; a claimant has no space.
local W = P .. 'w:' .. ARGV[1]

-- The fields of the project. Those that claims and results need are read at once, others when they are first used.
local project = setmetatable({}, { __index = function(known, name)
  known[name] = call('HGET', W, name) or ''
  return known[name]
end })
do
  local names = { 'kind', 'verify', 'domains', 'budget', 'start_budget', 'per_minute', 'min_version', 'lease_seconds' }
  local v = call('HMGET', W, 'deleting', unpack(names))
  if v[1] or not v[2] then return nil end
  for i, name in ipairs(names) do project[name] = v[i + 1] or '' end
end

-- Whether the claimant, the address or its network is blocked, in this project or in all; then whether one of the
-- further keys may exist: the same command finds that out.
local function is_blocked(claimant, address, network, ...)
  local sets = { W .. ':blocked', P .. 'w:blocked', ... }
  if call('EXISTS', unpack(sets)) == 0 then return false, false end
  for i = 1, 2 do
    local found = call('SMISMEMBER', sets[i], claimant, address, network)
    if found[1] + found[2] + found[3] > 0 then return true, true end
  end
  return false, true
end

local SHARED_QUEUES = { ['todo'] = true, ['todo:secondary'] = true, ['todo:redo'] = true }

-- A record as a table; nil for one that no tracker wrote. A site may have changed it; one must not hold up the others.
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
