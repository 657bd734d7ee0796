#!lua flags=allow-oom
-- due.lua: works through a slice of a due list. Looking at a timeout key whose time is over makes Redis delete it
-- and publish its expiry at once; the peer is reaped in the same call, so that a tracker that dies here loses nothing.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] peer memory (s)   ARGV[3] hnr minimum (bytes)   ARGV[4] hnr threshold (s)
-- ARGV[5]   grace after an outage (s)
-- ARGV[6]   the list's deadline (epoch s)   ARGV[7] first entry   ARGV[8] entries, at most   ARGV[9] peers to remove, at most
-- ARGV[10]  shortest timeout that an announce may have (s)   ARGV[11] what the store's clock should say (epoch s; '' unknown)
-- Answer    { entries seen, peers removed, peers that could not be looked at }; none seen: the list is done. It is deleted with its last entry
local P, now, memory = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local hnr_min, hnr_threshold, grace = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local shortest_timeout, expected = tonumber(ARGV[10]), ARGV[11]
local gap, heartbeat = unpack(redis.call('MGET', P .. 'gap', P .. 'heartbeat'))
--@ include gap.lua
--@ include clock.lua
--@ include swarm.lua
--@ include users.lua
--@ include reaping.lua
--@ include timeouts.lua

local list, first, most, most_reaped = P .. 'due:' .. ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local entries = call('LRANGE', list, first, first + most - 1)
local there, reaped, failed = #entries, 0, 0
local tids, pids, pidxs, timeouts = {}, {}, {}, {}
for i = 1, there do
  local pid = string.sub(entries[i], 1, 20)
  tids[i], pids[i], pidxs[i] = string.sub(entries[i], 21), pid, hex(pid)
  timeouts[i] = P .. 'ptimeout:' .. tids[i] .. ':' .. pidxs[i]
end

-- One whose timeout was renewed goes on into the list of its new end.
local function put_on(tid, pid, timeout)
  local left = call('PTTL', timeout)
  if left >= 0 then call('SET', timeout, put_due(tid, pid, left), 'KEEPTTL') end
end

-- Nearly all of them live on a usual day, for their peers have announced since: one look at all of them says which.
local alive, seen, name = there > 0 and call('MGET', unpack(timeouts)), 0, name_due(ARGV[6])
local silent, done = {}, {} -- torrents of those who are not; timeouts looked at, for a peer may stand here twice
for i = 1, there do
  if not alive[i] then silent[#silent + 1] = tids[i] end
end
find_torrents(silent)
while seen < there and reaped + failed < most_reaped do
  seen = seen + 1
  local i = seen
  local timeout = timeouts[i]
  if not alive[i] and not done[timeout] then
    local ok, one = pcall(remove_silent, tids[i], pids[i], pidxs[i])
    if ok then reaped = reaped + one else failed = failed + 1 end
  elseif alive[i] == name and not done[timeout] then -- otherwise the peer has left and come back, and stands in another list
    pcall(put_on, tids[i], pids[i], timeout)
  end
  done[timeout] = true
end
settle()
pcall(save_due_entries)
if there < most and seen == there then call('UNLINK', list) end
return { seen, reaped, failed }
