#!lua flags=allow-oom
-- reap.lua: removes peers whose timeout key is gone; several callers remove a peer only once.
-- ARGV[1..7] as in removal.lua   ARGV[8..] pairs of torrent id (decimal) and peer id (40 hex digits)
-- Answer    { peers removed, failures }
local P, call, now, memory = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
--@ include lib/removal.lua

-- Usually none is active: the caller that triggered the expiry event has already removed the peer.
local function reap(tid, pidx)
  if (call('HGET', P .. 'p:' .. tid .. ':' .. pidx, 'active') or '0') == '0' then return 0 end
  if call('EXISTS', P .. 'ptimeout:' .. tid .. ':' .. pidx) == 1 then return 0 end
  return remove_timed_out(tid, nil, pidx)
end

local removed, failed = 0, 0
for i = 8, #ARGV, 2 do
  local ok, one = pcall(reap, ARGV[i], ARGV[i + 1])
  if ok then removed = removed + one else failed = failed + 1 end
end
save_removals()
return { removed, failed }
