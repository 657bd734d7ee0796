#!lua flags=allow-oom
-- extend.lua: extends the leases of jobs that still run.
-- ARGV[1]   end of the leases (epoch ms)   ARGV[2..] triples: queue, id, token
-- Answer    for each 1, or 0 when another worker has the job now
local P, call = KEYS[1], redis.call
--@ include lib/leases.lua

local function extend(leases, id, token)
  local is_own = has_lease(leases, id, token)
  if is_own then call('ZADD', leases, 'XX', ARGV[1], id) end
  return is_own
end

local answer = {}
for i = 2, #ARGV, 3 do
  local ok, is_own = pcall(extend, P .. 'q:' .. ARGV[i] .. ':running', ARGV[i + 1], ARGV[i + 2])
  answer[#answer + 1] = ok and is_own and 1 or 0
end
return answer
