-- reaping.lua: removes silent peers. A fragment for reap.lua, due.lua and sweep.lua, after gap.lua, swarm.lua
-- and users.lua; needs `grace` (s). What all peers of a call have in common is read once and written once, by settle().
local torrents, gone = {}, {} -- by id, false for one that is not there; hashes of peers

-- Reads the ways back from torrent ids, all that are needed soon.
local function find_torrents(tids)
  if #tids == 0 then return end
  local keys = {}
  for i, tid in ipairs(tids) do keys[i] = P .. 'torrent_id:' .. tid end
  for i, ih in ipairs(call('MGET', unpack(keys))) do
    if torrents[tids[i]] == nil then torrents[tids[i]] = ih end
  end
end

local function torrent_of(tid)
  local t = torrents[tid]
  if t == nil then t = call('GET', P .. 'torrent_id:' .. tid) end
  if type(t) == 'string' then
    t = load(t)
    t.tid = t.tid or tid
  end
  torrents[tid] = t
  return t
end

-- Removes a peer whose timeout is gone. 1 when it was removed, 0 when there is nothing to remove: it is gone already
-- (another reaper was faster), or could not have announced because the tracker was away. `pid` is `pidx` in binary, and
-- may be left out.
local function remove_silent(tid, pid, pidx)
  local key = P .. 'p:' .. tid .. ':' .. pidx
  local p = call('HMGET', key, 'active', 'left', 'paused', 'last_announce', 'user_id', 'n4', 'n6')
  if p[1] ~= '1' then return 0 end
  local last = tonumber(p[4]) or 0
  if last <= gap_until and now < gap_until + grace then return 0 end
  local t = torrent_of(tid)
  if not t then
    call('UNLINK', key)
    call('SREM', P .. 'p:' .. pidx .. ':torrents', tid)
    return 0
  end
  depart(t, pid or raw(pidx), pidx, p[2], p[3], p[6], p[7])
  if memory > 0 then remember(key) else gone[#gone + 1] = key end
  -- A user who was deleted meanwhile has no account, and must not get one again.
  if p[5] and call('EXISTS', account_key(p[5], tid)) == 1 then
    local a = load_account(p[5], tid)
    release(a, last > gap_until)
    save_account(a)
  end
  return 1
end

-- Writes what the removals so far have come to.
local function settle()
  for _, t in pairs(torrents) do
    if type(t) == 'table' then save(t) end
  end
  save_derived()
  if #gone > 0 then call('UNLINK', unpack(gone)) end
  torrents, gone = {}, {}
end

-- The same for one of which that has to be found out: 0 also when its timeout lives.
local function reap(tid, pid, pidx)
  if call('EXISTS', P .. 'ptimeout:' .. tid .. ':' .. pidx) == 1 then return 0 end
  return remove_silent(tid, pid, pidx)
end
