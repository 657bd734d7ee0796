-- v2_half.lua: credits what a user announces on the v2 half of a hybrid torrent, after all else is written. Writes the
-- user's account on the v1 half, totals, and the counters of the peer's entry of the v1 half.

-- A client may announce only the v2 half of a hybrid torrent. So what is announced there is credited as well, on the v1
-- half, from the counters that the entry of the peer there holds: those of the last announce of either half. A client
-- that announces both counts once, in any order. A peer that has no entry there gets one, as if it had left. A v1 half
-- in another shard cannot be reached.
function credit_v1_half(r, p)
  local tid = call('GET', P .. 'info_hash:' .. r.v1)
  if not tid then return end
  local pidx, starts = r.announced and to_hex(r.announced) or r.pidx, r.event == 's'
  local entry, key = P .. 'p:' .. tid .. ':' .. pidx, P .. 't:' .. r.v1
  local v = call('HMGET', entry, 'user_id', 'endpoints', 'last_announce', 'uploaded', 'downloaded', 'left')
  local active, known = v[2] and true, v[3] and true
  if v[1] and v[1] ~= r.uid or active and starts or not known and r.event == 'x' then return end
  local uploaded, downloaded = tonumber(r.uploaded), tonumber(r.downloaded)
  local base_up, base_down = tonumber(v[4] or '') or 0, tonumber(v[5] or '') or 0
  if not known or starts then base_up, base_down = uploaded, min(known and base_down or downloaded, downloaded) end
  local half = { up = max(0, uploaded - base_up), down = max(0, downloaded - base_down), elapsed = p.elapsed, again = 0,
    time = active and 0 or p.time, restarted = not known, active = known or p.active, known = true, kind = p.kind,
    left = active and r.left or known and v[6] or p.left }
  if active and half.up + half.down == 0 then return end
  local multipliers_of = call('HMGET', key, 'multi_up', 'multi_dn')
  local a = load_account(r.uid, tid)
  a.user = load_totals(r, half, tid, false)
  local t = { ih = r.v1, tid = tid, key = key, multi_up = multipliers_of[1], multi_dn = multipliers_of[2] }
  call('HSET', entry, 'uploaded', max(base_up, uploaded), 'downloaded', max(base_down, downloaded))
  if not active then
    call('HSET', entry, 'user_id', r.uid, 'left', r.left, 'last_announce', now, 'active', '0')
    call('HSETNX', entry, 'first_announce', now)
    call('HSETNX', a.key, 'first_seen', now)
    call('EXPIRE', entry, max(memory, floor(r.timeout / 1000)))
  end
  credit_user(t, r, half, a)
  save_account(a)
  save_user(a.user)
  if rules.notes_updates then redis.pcall('SADD', P .. 'updated', tid .. ':' .. pidx .. ':' .. r.uid) end
end
