#!lua flags=allow-oom
-- extend.lua: the worker is still at it: its leases end later.
-- KEYS[1]   the prefix
-- ARGV[1]   end of the leases (epoch ms)
-- ARGV[2..] triples: queue, id, token
-- Answer    for each 1, or 0 when somebody else has the job now
local P = KEYS[1]
--@ include lease.lua

local answer = {}
for i = 2, #ARGV, 3 do
  local leases = P .. 'q:' .. ARGV[i] .. ':running'
  local ok, mine = pcall(holds, leases, ARGV[i + 1], ARGV[i + 2])
  mine = ok and mine and pcall(extend, leases, ARGV[i + 1], ARGV[1])
  answer[#answer + 1] = mine and 1 or 0
end
return answer
