#!lua
-- estimate_unique.lua: counts unique users by HyperLogLog (mode hyperloglog). No address is stored; the totals of all
-- time and of the month are estimates (standard error 0.81 %). A second call with the same batch changes nothing, so a
-- batch may be sent again when its answer was lost.
-- ARGV      as count_unique.lua
-- Answer    { addresses new to a torrent this month, keys of a wrong type, 0: addresses take no memory, so all are
--   counted when the store is nearly full }
local P, call, max_waiting = KEYS[1], redis.call, tonumber(ARGV[4])
--@ include lib/unique_users.lua

-- By how much the estimate of `key` grows; nil when the key is of a wrong type. Redis caches an estimate in the key, so
-- only a changed one has to be computed.
local function add_users(key, users)
  local before = try('PFCOUNT', key)
  if not before then return nil end
  if call('PFADD', key, unpack(users)) == 0 then return 0 end
  return call('PFCOUNT', key) - before
end

read_events(function(m, user)
  m.users = m.users or {}
  m.users[#m.users + 1] = user
end)
local new = 0
for _, m in ipairs(ordered) do
  local key = P .. 'hll:' .. string.sub(m.key, #P + 1)
  local total, of_month = add_users(key, m.users), add_users(key .. monthly, m.users)
  if of_month then call('EXPIREAT', key .. monthly, until_month, 'NX') end
  m.total, m.month = total or 0, of_month or 0
  if (m.total ~= 0 or m.month ~= 0) and grow_metric(m) then new = new + note_growth(m) end
end
save_boards()
return { new, failed, 0 }
