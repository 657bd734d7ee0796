#!lua
-- charge.lua: adds up what addresses do too often, and says who is over a limit. Bounded, whoever attacks from
-- however many addresses.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] length of a window (s)   ARGV[3] how long a verdict holds (s)
-- ARGV[4]   most subjects counted in a window   ARGV[5] most verdicts
-- ARGV[6..] triples: limit and subject ('joins 192.0.2.1'), by how much, how many of it a window allows
-- Answer    all verdicts that hold, in pairs: 'stage limit subject', until when (epoch s)
local P, call = KEYS[1], redis.call
local now, length, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local most_subjects, most_verdicts = tonumber(ARGV[4]), tonumber(ARGV[5])
local begin = now - now % length
local counts, before = P .. 'limits:' .. string.format('%d', begin), P .. 'limits:' .. string.format('%d', begin - length)
local verdicts = P .. 'limits'
call('ZREMRANGEBYSCORE', verdicts, '-inf', now)
local subjects = call('HLEN', counts)
for i = 6, #ARGV, 3 do
  local subject, most = ARGV[i], tonumber(ARGV[i + 2])
  local sum = tonumber(call('HGET', counts, subject) or '')
  if sum or subjects < most_subjects then
    if not sum then subjects = subjects + 1 end
    sum = call('HINCRBY', counts, subject, ARGV[i + 1])
    -- The window slides: of the one before counts as much as of it is within its length from now.
    sum = sum + (tonumber(call('HGET', before, subject) or '') or 0) * (1 - (now - begin) / length)
    local stage = sum >= 4 * most and 3 or sum >= 2 * most and 2 or sum >= most and 1
    if stage then call('ZADD', verdicts, now + hold, stage .. ' ' .. subject) end
  end
end
if #ARGV > 5 then call('EXPIRE', counts, 3 * length) end
local excess = call('ZCARD', verdicts) - most_verdicts
if excess > 0 then call('ZREMRANGEBYRANK', verdicts, 0, excess - 1) end
return call('ZRANGE', verdicts, 0, -1, 'WITHSCORES')
