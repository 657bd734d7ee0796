-- lease_check.lua: whether a worker still has its lease. After `call`.
local function has_lease(set, id, token)
  return call('HGET', set .. ':tokens', id) == token
end
