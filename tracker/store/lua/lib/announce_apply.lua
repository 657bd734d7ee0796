-- announce_apply.lua: applies an accepted announce. A fragment of announce.lua, after announce_join.lua,
-- completions.lua and changes.lua.

local function write_update(r, p)
  write_traffic(p.at, p.stored, r.left, r.uploaded, r.downloaded, p.up, p.down, p.elapsed, p.total_time + p.time)
end

local function renew_timeout(t, r, joining)
  local key = P .. 'ptimeout:' .. r.suffix
  if not joining and call('PEXPIRE', key, r.timeout) == 1 then return end
  call('SET', key, may_grow and add_due(t.tid, r.pid, r.timeout) or '', 'PX', r.timeout)
end

local function remove_from_arrays(t, r, p)
  local slots = call('HMGET', p.at, 'n4', 'n6')
  if slots[1] then remove_slot(t, p.kind, '4', tonumber(slots[1]), r.pid) end
  if slots[2] then remove_slot(t, p.kind, '6', tonumber(slots[2]), r.pid) end
end

-- Changes the peer's entry: nearly always its traffic only, sometimes its kind or its endpoints.
local function update_peer(t, r, p)
  local endpoints = r.v4 .. r.v6
  if p.kind ~= r.kind or p.endpoints ~= endpoints then
    r.evictions = evict(t, r)
    remove_from_arrays(t, r, p)
    call('HSET', p.at, 'endpoints', endpoints, insert_peer(t, r))
  elseif p.paused == r.paused then
    return write_update(r, p)
  end
  if p.paused ~= r.paused then call('HSET', p.at, 'paused', r.paused) end
  count_peer(t, p.kind, p.paused == '1', -1)
  count_peer(t, r.kind, r.paused == '1', 1)
  write_update(r, p)
  save_torrent(t)
end

-- The count is written together with the torrent's other counts if the caller saves those.
local function count_announce(t, is_saved)
  if is_saved and t.announces then
    t.announces = t.announces + 1
  else
    add_bounded(t.key, 'announces', 1)
  end
end

local function count_traffic(r, p)
  if not r.moves_only then add_traffic(p.up, p.down, p.elapsed, #r.endpoint == 6, r.own_family) end
end

local function record_announce(change, t, r, uid, a)
  if max_changes == 0 then return end
  if a then
    record_change(change, t, r.pidx, uid, r.left, math.floor(a.uploaded), math.floor(a.downloaded),
      math.floor(a.seed_time))
  elseif r.moves_only then
    local v = redis.pcall('HMGET', account_key(uid, t.tid), 'uploaded', 'downloaded', 'seed_time')
    record_change(change, t, r.pidx, uid, r.left, v[1] or '0', v[2] or '0', v[3] or '0')
  else
    record_change(change, t, r.pidx, uid, r.left, r.uploaded, r.downloaded, '0')
  end
end

local function apply(t, r, p, a)
  local joining, completed = not p.active, is_completion(r, p, a)
  drop_sole_address(t, r.endpoint)
  renew_timeout(t, r, joining)
  if p.up + p.down > 0 then count_traffic(r, p) end
  count_announce(t, joining)
  if joining then finish_join(t, r, p) else update_peer(t, r, p) end
  if a then
    credit_user(t, r, p, a)
    update_user_sets(t, r, a, joining)
    for _ = 1, r.evictions do end_activity(a, false) end
  elseif r.uid ~= '' then -- these may have joined before the halves were linked
    for _ = 1, r.evictions do end_activity_of(r.uid, t.tid, false) end
  end
  note_leecher(r, p, a)
  if joining then record_announce('joined', t, r, r.uid, a) end
  if completed and count_snatch(t, r, p, a) then record_announce('completed', t, r, r.uid, a) end
  if a then save_account(a) end
end

local function stop(t, r, p, a)
  local timeout = P .. 'ptimeout:' .. r.suffix
  leave_swarm(t, r.pid, r.pidx, p.left, p.paused, p.stored[10], p.stored[11], p.endpoints)
  count_announce(t, true)
  save_torrent(t)
  if p.up + p.down > 0 then count_traffic(r, p) end
  if is_remembered(r.uid) then
    write_update(r, p)
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
    return
  end
  local uid = p.stored[12] -- it joined before accounts were switched off, or the v1 half counts
  record_announce('stopped', t, r, uid or '', nil)
  if uid then end_activity_of(uid, t.tid, true) end
end
