-- work_record.lua: finds the record of a claim. After work_project.lua.

-- The record of a claim that is out, or of one that lapsed, and the key that holds it.
local function find_claim(name)
  for _, key in ipairs({ W .. ':claims', W .. ':lapsed:claims' }) do
    local readable, claim = pcall(cjson.decode, call('HGET', key, name) or '')
    if readable and type(claim) == 'table' then return claim, key end
  end
end
