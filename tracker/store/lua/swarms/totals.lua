#!lua flags=allow-oom
-- totals.lua: corrects the global sums by the rankings that they are sums of.
-- Answer    the number of sums that were wrong
local P, call, wrong = KEYS[1], redis.call, 0
for _, kind in ipairs({ 'seeders', 'leechers' }) do
  local sum, from = 0, 0
  repeat
    local page = call('ZREVRANGEBYSCORE', P .. 'i:' .. kind, '+inf', '(0', 'WITHSCORES', 'LIMIT', from, 1000)
    for i = 2, #page, 2 do sum = sum + tonumber(page[i]) end
    from = from + 1000
  until #page < 2000
  local stored = redis.pcall('GET', P .. 'stats:' .. kind) -- fails for a key of a wrong type
  if (type(stored) == 'string' and tonumber(stored) or 0) ~= sum then
    call('SET', P .. 'stats:' .. kind, string.format('%.0f', sum))
    wrong = wrong + 1
  end
end
return wrong
