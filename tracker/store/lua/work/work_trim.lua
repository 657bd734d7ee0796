#!lua flags=allow-oom
-- work_trim.lua: deletes what a project no longer keeps: old finished items, lapses, leaderboards, log entries.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] entries of the log to keep   ARGV[4] other entries to keep
-- ARGV[5]   max entries to delete of each key
-- ARGV[6..] months and weeks whose leaderboards are deleted (YYYY-MM, YYYY-Www)
-- Answer    the largest number deleted of one key (ARGV[5]: there may be more); nil when there is no such project
local P, call = KEYS[1], redis.call
local now_ms, max_deleted = tonumber(ARGV[2]), tonumber(ARGV[5])
local keep_log, keep = tonumber(ARGV[3]), tonumber(ARGV[4])
--@ include lib/work_project.lua

-- Whether an id of a stream comes before another.
local function is_earlier(id, other)
  local ms, number, other_ms, other_number = string.match(id .. ' ' .. other, '^(%d+)-(%d+) (%d+)-(%d+)$')
  if ms ~= other_ms then return tonumber(ms) < tonumber(other_ms) end
  return tonumber(number) < tonumber(other_number)
end

-- The earlier of `first` and what is not drained of the log: after the last id that was read, or read and not
-- acknowledged. Without a group it is `first`.
local function first_undrained(log, first)
  for _, group in ipairs(call('XINFO', 'GROUPS', log)) do
    local row = {}
    for i = 1, #group, 2 do row[group[i]] = group[i + 1] end
    for _, id in ipairs({ row['last-delivered-id'], call('XPENDING', log, row.name)[2] }) do
      if id and is_earlier(id, first) then first = id end
    end
  end
  return first
end

local KEPT_OUT = 7 * 86400000 -- ms, as in work_claim.lua
local most = 0

-- Deletes members of a ZSET with a score up to `till`, and what is beyond `max` members, the lowest first.
local function trim_index(index, till, max, record)
  local key = W .. index
  local old = till and call('ZRANGEBYSCORE', key, '-inf', till, 'LIMIT', 0, max_deleted) or {}
  local excess = max and math.min(call('ZCARD', key) - max, max_deleted) or 0
  if excess > #old then old = call('ZRANGE', key, 0, excess - 1) end
  for _, member in ipairs(old) do
    call('ZREM', key, member)
    if record then call('HDEL', W .. record, member) end
  end
  most = math.max(most, #old)
end

local days = tonumber(project.keep_done_days) or 0
local done_till = days > 0 and now_ms - days * 86400000 or nil
trim_index(':done', done_till)
trim_index(':done:by', done_till)
trim_index(':lapsed', project.kind == 'seeding' and now_ms - KEPT_OUT or nil, keep, ':lapsed:claims')

-- Trust of claimants who have nothing to lose: they never finished an item, and have no claim.
local excess = math.min(call('HLEN', W .. ':trust') - keep, max_deleted)
if excess > 0 then
  for _, claimant in ipairs(call('HRANDFIELD', W .. ':trust', excess)) do
    local known = call('ZSCORE', W .. ':downloader_count', claimant) or call('EXISTS', W .. ':by:' .. claimant) == 1
    if not known then call('HDEL', W .. ':trust', claimant) end
  end
end

-- The log: never what was not drained, or not added to leaderboards.
local log = W .. ':log'
local beyond = math.min(call('XLEN', log) - keep_log, max_deleted)
if beyond > 0 then
  local oldest = call('XRANGE', log, '-', '+', 'COUNT', beyond + 1)
  local first_kept = first_undrained(log, oldest[#oldest][1])
  local ranked = project.ranked ~= '' and project.ranked or '0-0'
  if is_earlier(ranked, first_kept) then first_kept = ranked end
  most = math.max(most, call('XTRIM', log, 'MINID', '=', first_kept))
end

for i = 6, #ARGV do
  for _, board in ipairs({ ':downloader_count:', ':downloader_bytes:', ':downloader_seconds:' }) do
    call('UNLINK', W .. board .. ARGV[i])
  end
end
return most
