#!lua flags=allow-oom
-- due.lua: works through a slice of a due list. Looking at a timeout key whose time is over makes Redis delete it
-- and publish its expiry at once; the peer is reaped in the same call, so that a tracker that dies here loses nothing.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] peer memory (s)   ARGV[3] hnr minimum (bytes)   ARGV[4] hnr threshold (s)
-- ARGV[5]   grace after an outage (s)
-- ARGV[6]   the list's deadline (epoch s)   ARGV[7] first entry   ARGV[8] entries
-- Answer    { entries seen, peers removed, peers that could not be looked at }; fewer seen than asked for: the list is done and deleted
local P, now, memory = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local hnr_min, hnr_threshold, grace = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
--@ include gap.lua
--@ include swarm.lua
--@ include users.lua
--@ include reaping.lua

local list, first, most = P .. 'due:' .. ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local packed = call('GETRANGE', list, first * 28, (first + most) * 28 - 1)
local seen, reaped, failed = math.floor(#packed / 28), 0, 0
for i = 0, seen - 1 do
  local tid, pid = struct.unpack('>I8c20', packed, i * 28 + 1)
  local ok, one = pcall(reap, decimal(tid), pid, hex(pid))
  if ok then reaped = reaped + one else failed = failed + 1 end
end
if seen < most then call('UNLINK', list) end
save_totals()
return { seen, reaped, failed }
