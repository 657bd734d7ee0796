-- removal.lua: removes peers that timed out, or that may not stay in their swarm. What the peers of a call share is
-- read once, and written once by save_removals(). Needs `now` and `memory`. ARGV of its scripts begins with
-- ARGV[1]   now (epoch s)   ARGV[2] peer memory (s)   ARGV[3] when a download is a hit-and-run (hit_and_run_rules.lua)
-- ARGV[4]   grace after an outage (s)   ARGV[5] min timeout of an announce (s)
-- ARGV[6]   what the store's clock should show (epoch s; '' unknown)
-- ARGV[7]   changes that the change feed keeps, about (0: none are recorded)
local grace, min_timeout, max_changes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
--@ include lib/hit_and_run_rules.lua
--@ include lib/store_clock.lua
local outage_from, outage_until, steady = current_outage(ARGV[6])
--@ include lib/swarm.lua
--@ include lib/accounts.lua
local torrents, deleted_peers = {}, {} -- by torrent id, false for a deleted torrent; hashes of peers

local function find_torrent(tid)
  local t = torrents[tid]
  if t == nil then t = call('GET', P .. 'torrent_id:' .. tid) end
  if type(t) == 'string' then
    t = load_torrent(t)
    t.tid = t.tid or tid
  end
  torrents[tid] = t
  return t
end

local function read_peer(tid, pidx)
  return call('HMGET', P .. 'p:' .. tid .. ':' .. pidx, 'active', 'left', 'paused', 'last_announce', 'user_id', 'n4',
    'n6', 'endpoints')
end

-- Removes an active peer, as read_peer() has read it. `decide`: whether its user may get a hit-and-run by it.
local function remove_peer(tid, pid, pidx, p, change, decide)
  local key, t = P .. 'p:' .. tid .. ':' .. pidx, find_torrent(tid)
  if not t then
    call('UNLINK', key)
    call('SREM', P .. 'p:' .. pidx .. ':torrents', tid)
    return 0
  end
  leave_swarm(t, pid or to_raw(pidx), pidx, p[2], p[3], p[6], p[7], p[8])
  feed.record_peer(change, t, pidx, p[5] or '', p[2])
  if is_remembered(p[5]) then deactivate_peer(key) else deleted_peers[#deleted_peers + 1] = key end
  if p[5] then end_activity_of(p[5], tid, decide, p[4]) end
  return 1
end

-- Whether the peer has announced since the last interruption. After a step back, times up to `outage_from` are from
-- before the step or from after it; when all peers from before it are gone, from after it.
local function has_announced_since(last)
  local is_clear = now >= outage_until + 2 * grace
  return last <= now and last > (is_clear and outage_until or math.max(outage_from, outage_until))
end

-- A peer that announced within the shortest timeout has none only if the store's clock was behind at that announce: it
-- may have been for seconds. The peer gets the rest of that time, and the function returns true. Timeouts of WebSockets
-- are shorter.
local function renew_timeout_of(tid, pid, pidx, p, last)
  local left = last + min_timeout - now
  if left <= CLOCK_SLACK or left == math.huge or last > now or #(p[8] or '') >= sockets.BYTES then return false end
  call('SET', P .. 'ptimeout:' .. tid .. ':' .. pidx, add_due(tid, pid or to_raw(pidx), 1000 * left), 'EX',
    string.format('%.0f', left))
  return true
end

-- Removes a peer whose timeout is gone. Returns 1, or 0 when another caller has removed it already, or when its time to
-- announce after an interruption has not ended. `pid` is `pidx` in binary, and may be nil.
local function remove_timed_out(tid, pid, pidx)
  if now < outage_until + grace then return 0 end
  local p = read_peer(tid, pidx)
  local last = tonumber(p[4] or '') or 0
  if p[1] ~= '1' and p[1] ~= '2' or renew_timeout_of(tid, pid, pidx, p, last) then return 0 end
  local decide = has_announced_since(last)
  if p[1] == '1' then return remove_peer(tid, pid, pidx, p, 'reaped', decide) end
  deactivate_peer(P .. 'p:' .. tid .. ':' .. pidx) -- its user was active by the v2 half of a hybrid torrent
  end_activity_of(p[5] or '', tid, decide, p[4])
  return 1
end

local function save_removals()
  for _, t in pairs(torrents) do
    if type(t) == 'table' then save_torrent(t) end
  end
  save_rankings()
  pcall(save_network_counts)
  pcall(save_due_entries)
  if #deleted_peers > 0 then call('UNLINK', unpack(deleted_peers)) end
  torrents, deleted_peers = {}, {}
end
