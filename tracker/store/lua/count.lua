#!lua flags=allow-oom
-- count.lua: adds what a process counted, once, however often it has to send it.
-- KEYS[1]   the prefix
-- ARGV[1]   name of the process   ARGV[2] number of the batch   ARGV[3] how many figures
-- ARGV[4..] pairs of figure and count, then pairs of reason of refusal and count
-- Answer    the number of pairs that could not be added, because a key is of another type
local P, wrong = KEYS[1], 0
local process = P .. 'counted:' .. ARGV[1]
if redis.call('GET', process) == ARGV[2] then return 0 end
redis.call('SET', process, ARGV[2], 'EX', 86400)
local failures = 4 + 2 * tonumber(ARGV[3])
for i = 4, #ARGV, 2 do
  local answer
  if i < failures then
    answer = redis.pcall('INCRBY', P .. 'stats:' .. ARGV[i], ARGV[i + 1])
  else
    answer = redis.pcall('HINCRBY', P .. 'stats:failures', ARGV[i], ARGV[i + 1])
  end
  if type(answer) == 'table' then wrong = wrong + 1 end
end
return wrong
