#!lua flags=allow-oom
-- totals.lua: holds the global sums against the rankings they are sums of.
-- KEYS[1]   the prefix
-- Answer    the number of sums that were wrong and are right now
local P, wrong = KEYS[1], 0
for _, kind in ipairs({ 'seeders', 'leechers' }) do
  local sum, page, from = 0, nil, 0
  repeat
    page = redis.call('ZREVRANGEBYSCORE', P .. 'i:' .. kind, '+inf', '(0', 'WITHSCORES', 'LIMIT', from, 1000)
    for i = 2, #page, 2 do sum = sum + tonumber(page[i]) end
    from = from + 1000
  until #page < 2000
  local stored = redis.pcall('GET', P .. 'stats:' .. kind) -- which may be somebody else's key
  if (type(stored) == 'string' and tonumber(stored) or 0) ~= sum then
    redis.call('SET', P .. 'stats:' .. kind, string.format('%.0f', sum))
    wrong = wrong + 1
  end
end
return wrong
