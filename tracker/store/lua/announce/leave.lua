-- leave.lua: a peer leaves the swarm. Writes the arrays, counts, addresses and sets of the swarm, the peer's hash and
-- timeout; of a user also account and totals (credit.lua).

local function leave(t, r, p, a)
  local timeout, uid = P .. 'ptimeout:' .. r.suffix, p.stored[11] or ''
  leave_swarm(t, r.pid, r.pidx, p.left, p.paused, p.stored[12], p.stored[13], p.endpoints)
  if t.announces then t.announces = t.announces + 1 else add_bounded(t.key, 'announces', 1) end
  save_torrent(t)
  if p.up + p.down > 0 then count_traffic(r, p) end
  if is_remembered(r.uid) then
    write_peer(r, p)
    deactivate_peer(p.at)
    call('DEL', timeout)
  else
    call('UNLINK', p.at, timeout)
  end
  if a then
    credit_user(t, r, p, a)
    record_announce('stopped', t, r, r.uid, a)
    end_activity(a, true)
    save_account(a)
    save_user(a.user, a)
    return
  end
  record_announce('stopped', t, r, uid, nil)
  -- It joined before accounts were switched off, or before the halves of a hybrid torrent were linked.
  if uid ~= '' then end_activity_of(uid, t.tid, true) end
end
