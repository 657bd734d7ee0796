#!lua
-- count_hits.lua: adds up hits of rate limits and returns who is over a limit. Memory is bounded for any number of
-- attacking addresses.
-- ARGV[1]   now (epoch s)   ARGV[2] length of a window (s)   ARGV[3] how long a limit stays in force (s)
-- ARGV[4]   max subjects counted in a window   ARGV[5] max subjects over a limit
-- ARGV[6..] triples: limit and subject ('joins 192.0.2.1'), hits, how many hits a window allows
-- Answer    all that are over a limit, in pairs: 'stage limit subject', until when (epoch s)
local P, call = KEYS[1], redis.call
local now, length, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local max_subjects, max_limited = tonumber(ARGV[4]), tonumber(ARGV[5])
local begin = now - now % length
local counts = P .. 'limits:' .. string.format('%d', begin)
local before = P .. 'limits:' .. string.format('%d', begin - length)
local limited = P .. 'limits'
call('ZREMRANGEBYSCORE', limited, '-inf', now)
local subjects = call('HLEN', counts)
for i = 6, #ARGV, 3 do
  local subject, allowed = ARGV[i], tonumber(ARGV[i + 2])
  local sum = tonumber(call('HGET', counts, subject) or '')
  if sum or subjects < max_subjects then
    if not sum then subjects = subjects + 1 end
    sum = call('HINCRBY', counts, subject, ARGV[i + 1])
    -- A sliding window: the previous window counts by the part of it that is at most `length` seconds ago.
    sum = sum + (tonumber(call('HGET', before, subject) or '') or 0) * (1 - (now - begin) / length)
    local stage = sum >= 4 * allowed and 3 or sum >= 2 * allowed and 2 or sum >= allowed and 1
    if stage then call('ZADD', limited, now + hold, stage .. ' ' .. subject) end
  end
end
if #ARGV > 5 then call('EXPIRE', counts, 3 * length) end
local excess = call('ZCARD', limited) - max_limited
if excess > 0 then call('ZREMRANGEBYRANK', limited, 0, excess - 1) end
return call('ZRANGE', limited, 0, -1, 'WITHSCORES')
