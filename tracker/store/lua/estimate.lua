#!lua
-- estimate.lua: counts who was seen where by HyperLogLog: mode hyperloglog. No address is kept; the figures are
-- estimates (standard error 0.81 %) of how many different ones there were, ever and in the month. Told the same twice it
-- changes nothing, so a batch may be sent again when its answer was lost.
-- KEYS[1]   the prefix
-- ARGV      as sight.lua
-- Answer    { addresses new to a torrent this month, keys that could not be written because they are of another type }
local P, outbox_most = KEYS[1], tonumber(ARGV[4])
--@ include outbox.lua
--@ include uniques.lua

-- By how much the estimate of `key` grows; nil when the key is of another type. An estimate that is asked for again is
-- remembered in the key itself, so only one that changed costs.
local function observe(key, users)
  local before = try('PFCOUNT', key)
  if not before then return nil end
  if call('PFADD', key, unpack(users)) == 0 then return 0 end
  return call('PFCOUNT', key) - before
end

read_sightings(function(m, user)
  m.users = m.users or {}
  m.users[#m.users + 1] = user
end)
local new = 0
for _, m in ipairs(order) do
  local key = P .. 'hll:' .. string.sub(m.key, #P + 1)
  local total, of_month = observe(key, m.users), observe(key .. monthly, m.users)
  if of_month then call('EXPIREAT', key .. monthly, until_month, 'NX') end
  m.total, m.month = total or 0, of_month or 0
  if (m.total ~= 0 or m.month ~= 0) and grow(m) then new = new + tell(m) end
end
save_boards()
return { new, failed }
