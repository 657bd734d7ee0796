#!lua
-- sum_users.lua: writes the sums over all shards of some users under the main prefix.
-- ARGV[1]   the names of totals, with spaces between
-- ARGV[2..] for each user: user id; over all shards the number of hit-and-runs, and the sums of these totals
-- Answer    nothing
local P, call = KEYS[1], redis.call
--@ include lib/numbers.lua
--@ include lib/index_entries.lua
local summed = {}
for name in string.gmatch(ARGV[1], '%S+') do summed[#summed + 1] = name end

-- A total is its base under the main prefix and the sum. Without a base, a program set it: the base follows from it.
local function save_sums(uid, first)
  local key, totals = P .. 'u:' .. uid, {}
  if not call('HGET', key, 'passkey') then return end
  for i, field in ipairs(summed) do
    local sum, v = tonumber(ARGV[first + i]), call('HMGET', key, field, 'base_' .. field)
    local base = tonumber(v[2] or '')
    if not base then
      base = v[1] and (stored_number(v[1]) or 0) - sum or 0
      call('HSET', key, 'base_' .. field, string.format('%.0f', base))
    end
    totals[field] = string.format('%.0f', math.max(0, math.min(MAX_EXACT, base + sum)))
    call('HSET', key, field, totals[field])
  end
  if tonumber(ARGV[first]) > 0 then
    call('ZADD', P .. 'i:hnr', ARGV[first], uid)
  else
    call('ZREM', P .. 'i:hnr', uid)
  end
  note_rank(uid, totals.uploaded, totals.downloaded)
end

for i = 2, #ARGV, 2 + #summed do pcall(save_sums, ARGV[i], i + 1) end -- a key of a wrong type: leave this user out
write_index_entries()
