#!lua flags=allow-oom
-- reap.lua: removes peers whose timeout key is gone, once, whoever calls it.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] peer memory (s)   ARGV[3] hnr minimum (bytes)   ARGV[4] hnr threshold (s)
-- ARGV[5]   grace after an outage (s)
-- ARGV[6]   what the store's clock should say (epoch s; '' unknown)
-- ARGV[7..] pairs of torrent id (decimal) and peer id (40 hex digits)
-- Answer    { peers removed, peers that could not be looked at }
local P, now, memory = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local hnr_min, hnr_threshold, grace = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local expected = ARGV[6]
local gap, heartbeat = unpack(redis.call('MGET', P .. 'gap', P .. 'heartbeat'))
--@ include gap.lua
--@ include clock.lua
--@ include swarm.lua
--@ include users.lua
--@ include reaping.lua

-- Most are gone: whoever looked at their timeouts, which is what published their ends, has removed them as well.
local function reap_if_there(tid, pidx)
  if call('HGET', P .. 'p:' .. tid .. ':' .. pidx, 'active') ~= '1' then return 0 end
  return reap(tid, nil, pidx)
end

local reaped, failed = 0, 0
for i = 7, #ARGV, 2 do
  local ok, one = pcall(reap_if_there, ARGV[i], ARGV[i + 1])
  if ok then reaped = reaped + one else failed = failed + 1 end
end
settle()
return { reaped, failed }
