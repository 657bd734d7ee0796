-- queue_update.lua: changes of a queue that are due by time. After queue_finish.lua, queue_withdraw.lua and
-- lease_release.lua.
local MAX_PROMOTED, MAX_EXPIRED = 500, 100

-- Fails a waiting job whose deadline has passed.
local function fail_late(Q, id, note)
  local v = read_job(id, 'error')
  withdraw(Q, id)
  if not v then return end
  local earlier = v[2] and v[2] ~= '' and '; before that: ' .. v[2] or ''
  note(finish_job(Q, id, 'failed', 'its deadline passed before it could run' .. earlier))
end

-- Ends leases that have lapsed, fails jobs past their deadline, and makes jobs ready whose time has come. Calls
-- `note(status)` for each job that changed.
local function update_queue(Q, note)
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.running, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    local v = read_job(id, 'retries', 'max_retries', 'priority', 'deadline')
    release_lease(Q.running, id)
    if v then note(run_failed(Q, id, v, now, 'lease expired: the worker stopped responding')) end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.deadlines, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    fail_late(Q, id, note)
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', Q.delayed, '-inf', now, 'LIMIT', 0, MAX_PROMOTED)) do
    local v = read_job(id, 'priority', 'run_after')
    if v then
      call('ZREM', Q.delayed, id)
      make_ready(Q, id, v[1], tonumber(v[2] or '') or 0, tonumber(v[3] or '') or now)
    else
      withdraw(Q, id)
    end
  end
end
