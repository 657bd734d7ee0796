-- leave.lua: a peer leaves the swarm. Writes the arrays, counts, addresses and sets of the swarm, the peer's hash and
-- timeout; of a user also account and totals (credit.lua).

-- The hash of a user's peer stays for some time, with its counters.
local function write_departure(r, p)
  local v, moved = p.stored, p.up + p.down > 0
  local left = r.left ~= '' and r.left or p.left or '' -- a seeder that stops without it has all when it comes back
  local marks = marks_of(p.paused, p.lower, moved, '')
  local fields, n = { 'active', '0', 'last_announce', now, 'total_time', p.total_time + p.time, nil, nil, nil, nil }, 6
  if left ~= v[2] or p.base_up ~= (v[3] or '0') or p.base_down ~= (v[4] or '0') then
    fields[7], fields[8], fields[9], fields[10], fields[11], fields[12], n =
      'left', left, 'uploaded', p.base_up, 'downloaded', p.base_down, 12
  end
  if moved then
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4], n =
      'speed_up', speed(p.up, p.elapsed), 'speed_dn', speed(p.down, p.elapsed), n + 4
  end
  if p.lower ~= '' then fields[n + 1], fields[n + 2], n = 'lower', p.lower, n + 2 end
  if marks and marks ~= v[6] then fields[n + 1], fields[n + 2], n = 'marks', marks, n + 2 end
  call('HSET', p.at, unpack(fields, 1, n))
  fields, n = { 'endpoints', nil, nil, nil, nil, nil, nil }, 1
  if v[8] then fields[2], n = 'n4', 2 end
  if p.n6 then fields[n + 1], n = 'n6', n + 1 end
  if #p.endpoints >= sockets.BYTES then fields[n + 1], n = 'nw', n + 1 end
  if p.had_speed and not moved then fields[n + 1], fields[n + 2], n = 'speed_up', 'speed_dn', n + 2 end
  if p.had_lower and p.lower == '' then fields[n + 1], n = 'lower', n + 1 end
  if v[6] and not marks then fields[n + 1], n = 'marks', n + 1 end
  call('HDEL', p.at, unpack(fields, 1, n))
  call('EXPIRE', p.at, memory)
end

-- The WebSocket of a peer was closed that has another endpoint, and stays.
function sockets.lose(t, r, p)
  local slot = count_of[call('HGET', p.at, 'nw')]
  if slot then remove_slot(t, p.kind, 'w', slot, r.pid) end
  remove_address(t, r.endpoint, r.pid)
  call('HSET', p.at, 'endpoints', r.v4 .. r.v6)
  call('HDEL', p.at, 'nw')
  save_torrent(t)
end

-- The feed has a leecher that stops with all bytes as a seeder first.
local function record_departure(t, r, uid, a, completed)
  if completed then
    t.seeders = t.seeders + 1
    record_announce('completed', t, r, r.uid, a)
    t.seeders = t.seeders - 1
  end
  record_announce('stopped', t, r, uid, a)
end

function leave(t, r, p, a)
  local timeout, uid = P .. 'ptimeout:' .. r.suffix, p.stored[7] or ''
  leave_swarm(t, r.pid, r.pidx, p.left, p.paused, p.stored[8], p.n6, p.endpoints)
  save_torrent(t)
  if p.up + p.down > 0 then count_traffic(r, p) end
  local completed = is_completion(r, p, a) and count_snatch(t, r, p, a)
  if is_remembered(r.uid) then
    write_departure(r, p)
    call('DEL', timeout)
  else
    call('UNLINK', p.at, timeout)
  end
  if a then
    credit_user(t, r, p, a)
    if p.time == 0 then a.last_seen = now end -- else the end of its time says so
    if max_changes > 0 then record_departure(t, r, r.uid, a, completed) end
    end_activity(a, true)
    save_account(a)
    save_user(a.user)
    return
  end
  if max_changes > 0 then record_departure(t, r, uid, nil, completed) end
  -- It joined before accounts were switched off, or before the halves of a hybrid torrent were linked.
  if uid ~= '' then end_activity_of(uid, t.tid, true) end
end

-- A user's peer that was removed before stops: what it moved since its last announce is credited, as by an announce
-- with which it would come back.
function leave_late(t, r, p, tid)
  local a = load_credited_account(r, load_totals(r, p, tid), tid, p)
  if not a then return end
  count_traffic(r, p)
  call('HSET', p.at, 'uploaded', p.base_up, 'downloaded', p.base_down, 'last_announce', now)
  if r.left ~= '' then call('HSET', p.at, 'left', r.left) end
  if p.lower ~= '' then call('HSET', p.at, 'lower', p.lower) elseif p.had_lower then call('HDEL', p.at, 'lower') end
  credit_user(t, r, p, a)
  -- The feed had it as stopped or reaped before.
  if notes_updates then redis.pcall('SADD', P .. 'updated', r.suffix .. ':' .. r.uid) end
  save_account(a)
  save_user(a.user)
end
