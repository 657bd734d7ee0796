-- work_record.lua: finds the record of a claim. After work_project.lua.

-- The record of a claim that is out, or of one that lapsed; the key and the field that hold it. A key of a wrong type
-- counts as missing: it must not keep other claims from being looked at.
local function find_claim(name)
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  for _, place in ipairs({ { W .. ':by:' .. claimant, item }, { W .. ':lapsed:claims', name } }) do
    local key, field = unpack(place)
    local record = redis.pcall('HGET', key, field)
    local readable, claim = pcall(cjson.decode, type(record) == 'string' and record or '')
    if readable and type(claim) == 'table' then return claim, key, field end
  end
end
