-- v2_half.lua: what a user announced on the v2 half of a hybrid torrent, applied to the v1 half, in the shard of that.
-- Writes the user's account, totals and sets, the snatches of the torrent, and the peer's entry with its timeout.
--
-- A client announces both halves or one of them. If the peer is in the swarm of the v1 half, only what it moved since
-- the last announce of either half is new. Else the user is active by the v2 half alone: `active` of the entry is 2, it
-- is in no array, and no reply names it. The entry of another user is left as it is.
local function read_half(r)
  local at = P .. 'p:' .. r.suffix
  local v = call('HMGET', at, 'user_id', 'endpoints', 'last_announce', 'uploaded', 'downloaded', 'left', 'active')
  local in_swarm, last, alone, starts = v[2] and true, tonumber(v[3] or ''), v[7] == '2', r.event == 's'
  if v[1] and v[1] ~= r.uid or in_swarm and starts or not last and r.event == 'x' then return end
  local up, down = tonumber(v[4] or '') or 0, tonumber(v[5] or '') or 0
  if not last then up, down = r.uploaded + 0, r.downloaded + 0 elseif starts then up = r.uploaded + 0 end
  local elapsed, time = last and max(0, since_step_back(now - last)) or 0, 0
  if alone and elapsed > 0 then time = elapsed - time_out_of_service(now - elapsed) end
  if starts then down = min(down, r.downloaded) end
  return { at = at, up = max(0, r.uploaded - up), down = max(0, r.downloaded - down), elapsed = elapsed, again = 0,
    time = time < max_gap and time or 0, restarted = not last, active = in_swarm or alone, alone = alone,
    in_swarm = in_swarm, known = last and true, kind = kind_of(v[6], '0'), left = in_swarm and r.left or v[6] or false,
    base_up = max(up, r.uploaded), base_down = max(down, r.downloaded) }
end

local function write_half(t, r, p)
  local timeout, leaves = P .. 'ptimeout:' .. r.suffix, r.event == 'x'
  call('HSET', p.at, 'uploaded', p.base_up, 'downloaded', p.base_down)
  if p.in_swarm then return end
  call('HSET', p.at, 'left', r.left, 'last_announce', now, 'user_id', r.uid, 'active', leaves and '0' or '2',
    'marks', 'x')
  call('HSETNX', p.at, 'first_announce', now)
  if leaves then
    call('EXPIRE', p.at, max(memory, floor(r.timeout / 1000)))
    call('DEL', timeout)
  elseif p.alone then
    renew_timeout(t, r)
  else
    call('PERSIST', p.at)
    call('SET', timeout, add_due(t.tid, r.pid, r.timeout), 'PX', r.timeout)
  end
end

-- Returns the answer, which no peer gets: a refusal of a download too many, or one without counts.
local function announce_v2_half(t, r, tid)
  local nothing = 'a 0 0 0 '
  if r.uid == '' or r.moves_only or not tid then return nothing end
  r.suffix, r.v4, r.v6, r.w, r.kind = tid .. ':' .. r.pidx, '', '', '', r.left == '0' and 's' or 'l'
  local p, leaves = read_half(r), r.event == 'x'
  if not p or p.in_swarm and p.up + p.down == 0 and r.event ~= 'c' then return nothing end
  local joins = not (p.active or leaves)
  if joins and has_max_downloads(r, tid) then return rules.warns_beyond and nothing or refuse('too many downloads') end
  if joins and not may_grow then return nothing end
  local u = load_totals(r, p, tid, false)
  if joins and needs_registration(t, r, tid, u) then return again(r) end
  local a = load_account(r.uid, tid, nil, joins)
  a.user, a.passkey = u, r.passkey
  local completed = is_completion(r, p, a)
  write_half(t, r, p)
  if leaves then credit_user(t, r, p, a) else credit_announce(t, r, p, a) end
  if completed and count_snatch(t, r, p, a) then record_announce('completed', t, r, r.uid, a) end
  if leaves and p.alone then end_activity(a, true) end
  save_account(a)
  save_user(u)
  if notes_updates then redis.pcall('SADD', P .. 'updated', r.suffix .. ':' .. r.uid) end
  return nothing
end
