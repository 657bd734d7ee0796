-- work_find_claim.lua: finds the record of a claim. After work_record.lua.

-- The record of a claim that is out, or of one that lapsed, and the key that holds it.
local function find_claim(name)
  if not string.find(name, ' %S+$') then return nil end
  for _, key in ipairs({ W .. ':claims', W .. ':lapsed:claims' }) do
    local claim = record_of(call('HGET', key, name))
    if claim then return claim, key end
  end
end
