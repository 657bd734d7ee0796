-- lease_release.lua: ends a lease. After `call`.
local function release_lease(set, id)
  call('ZREM', set, id)
  call('HDEL', set .. ':tokens', id)
end
