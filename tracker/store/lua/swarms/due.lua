#!lua flags=allow-oom
-- due.lua: processes a slice of a due list. Reading a timeout key that has expired makes Redis delete it and publish
-- its expiry at once; the peer is removed in the same call, so a tracker that dies here loses nothing.
-- ARGV[1..7] as in removal.lua
-- ARGV[8]   the list's deadline (epoch s)   ARGV[9] first entry   ARGV[10] max entries   ARGV[11] max peers to remove
-- Answer    { entries processed, peers removed, failures }; no entries: the list is done, and deleted with its last one
local P, call, now, memory = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lib/removal.lua

local list, first = P .. 'due:' .. ARGV[8], tonumber(ARGV[9])
local max_entries, max_removed = tonumber(ARGV[10]), tonumber(ARGV[11])
local entries = call('LRANGE', list, first, first + max_entries - 1)
local length, removed, failed = #entries, 0, 0
local tids, pids, pidxs, timeouts = {}, {}, {}, {}
for i = 1, length do
  local pid = string.sub(entries[i], 1, 20)
  tids[i], pids[i], pidxs[i] = string.sub(entries[i], 21), pid, to_hex(pid)
  timeouts[i] = P .. 'ptimeout:' .. tids[i] .. ':' .. pidxs[i]
end

-- A peer whose timeout was renewed moves to the list of its new end.
local function move_on(tid, pid, timeout)
  local left = call('PTTL', timeout)
  if left >= 0 then call('SET', timeout, add_due(tid, pid, left), 'KEEPTTL') end
end

-- Nearly all timeouts exist, as most peers have announced since. One command tells which.
local alive, processed, name = length > 0 and call('MGET', unpack(timeouts)), 0, due_name(ARGV[8])
local silent, keys = {}, {} -- torrents of peers without a timeout
for i = 1, length do
  if not alive[i] then silent[#silent + 1], keys[#keys + 1] = tids[i], P .. 'torrent_id:' .. tids[i] end
end
for i, ih in ipairs(keys[1] and call('MGET', unpack(keys)) or {}) do torrents[silent[i]] = ih end
local done = {} -- timeouts processed, as a peer may be listed twice
while processed < length and removed + failed < max_removed do
  processed = processed + 1
  local i = processed
  local timeout = timeouts[i]
  if not alive[i] and not done[timeout] then
    local ok, one = pcall(remove_timed_out, tids[i], pids[i], pidxs[i])
    if ok then removed = removed + one else failed = failed + 1 end
  elseif alive[i] == name and not done[timeout] then -- else the peer left and came back, and is in another list
    pcall(move_on, tids[i], pids[i], timeout)
  end
  done[timeout] = true
end
save_removals()
if length < max_entries and processed == length then call('UNLINK', list) end
return { processed, removed, failed }
