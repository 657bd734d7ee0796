-- work_claim_lapse.lua: ends a claim whose claimant did not keep it. After work_claim_end.lua, work_give_back.lua,
-- work_counts.lua and work_trust.lua; needs `now_ms` (epoch ms).

-- The record of a verified project's claim is kept, and looked at as before: what was seeded may be verified late.
-- Without a record of a tracker's, nothing is known against the claimant: only the item is given back.
local function lapse(fields, name)
  local claim, record = read_claim(name)
  if not claim then
    release_lease(W .. ':out', name)
    return call('HDEL', W .. ':claims', name)
  end
  local item, claimant = string.match(name, '^(.*) (%S+)$')
  end_claim(fields, item, claimant)
  if not record then
    give_back(item, claim)
    return count_work('repaired', '1')
  end
  give_back(item, claim, fields.lapsed_to_redo == '1' and 'todo:redo' or nil)
  call('HSET', W .. ':trust', claimant, math.max(1, math.floor(budget_of(fields, claimant) / 2)))
  call('ZADD', W .. ':lapsed', now_ms, name)
  if fields.verify ~= 'none' then
    call('HSET', W .. ':lapsed:claims', name, record)
    call('ZADD', W .. ':checks', '0', name) -- next
  end
  count_work('lapsed', '1')
end
