-- reaping.lua: removes one silent peer. A fragment for reap.lua, due.lua and sweep.lua, after gap.lua, swarm.lua
-- and users.lua; needs `grace` (s).

-- Removes a peer whose timeout is gone. 1 when it was removed, 0 when there is nothing to remove: it is gone already
-- (another reaper was faster), or could not have announced because the tracker was away. `pid` is `pidx` in binary, and
-- may be left out.
local function remove_silent(tid, pid, pidx)
  local suffix = tid .. ':' .. pidx
  local p = call('HMGET', P .. 'p:' .. suffix, 'active', 'left', 'paused', 'last_announce', 'user_id', 'n4', 'n6')
  if p[1] ~= '1' then return 0 end
  local last = tonumber(p[4]) or 0
  if last <= gap_until and now < gap_until + grace then return 0 end
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  if not ih then
    call('UNLINK', P .. 'p:' .. suffix)
    call('SREM', P .. 'p:' .. pidx .. ':torrents', tid)
    return 0
  end
  local t = load(ih)
  t.tid = t.tid or tid
  depart(t, pid or raw(pidx), pidx, p[2], p[3], p[6], p[7])
  save(t)
  -- A user who was deleted meanwhile has no account, and must not get one again.
  if p[5] and call('EXISTS', account_key(p[5], tid)) == 1 then
    local a = load_account(p[5], tid)
    release(a, last > gap_until)
    save_account(a)
  end
  return 1
end

-- The same for one of which that has to be found out: 0 also when its timeout lives.
local function reap(tid, pid, pidx)
  if call('EXISTS', P .. 'ptimeout:' .. tid .. ':' .. pidx) == 1 then return 0 end
  return remove_silent(tid, pid, pidx)
end
