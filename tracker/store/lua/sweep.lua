#!lua flags=allow-oom
-- sweep.lua: visits swarms, at most `budget` members a call: reaps members without a timeout, and repairs what
-- does not agree. Events may be lost and due lists too; this is the truth behind them.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] peer memory (s)   ARGV[3] hnr minimum (bytes)   ARGV[4] hnr threshold (s)
-- ARGV[5]   grace after an outage (s)   ARGV[6] forget empty torrents after (s)   ARGV[7] budget (members)
-- ARGV[8]   where to go on in the first torrent ('' from its start)
-- ARGV[9..] torrent ids
-- Answer    { torrents done, where to go on in the next, peers removed, repairs, torrents forgotten, members seen }
local P, now, memory = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local hnr_min, hnr_threshold, grace = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local forget_after, budget = tonumber(ARGV[6]), tonumber(ARGV[7])
--@ include gap.lua
--@ include swarm.lua
--@ include users.lua
--@ include reaping.lua
--@ include recount.lua

local reaped, repairs, forgotten, seen = 0, 0, 0, 0

local function repair(t)
  rebuild(t)
  repairs = repairs + 1
end

-- A torrent nobody registered by hand, or that the site deleted, is kept for a while after its last peer.
local function visit_empty(t)
  if not check_bounds(t) then return repair(t) end
  if call('HGET', t.key, 'auto') ~= '1' and call('EXISTS', P .. 'info_hash:' .. t.ih) == 1 then return end
  local since = tonumber(call('HGET', t.key, 'empty_since') or '')
  if not since then
    call('HSET', t.key, 'empty_since', now)
  elseif now - since >= forget_after then
    forget(t)
    forgotten = forgotten + 1
  end
end

-- A swarm that fits into one call is counted exactly.
local function visit_small(t, tid)
  local members = call('SMEMBERS', P .. 'tpeers:' .. t.ih)
  seen = seen + #members
  for _, pidx in ipairs(members) do reaped = reaped + reap(tid, raw(pidx), pidx) end
  t = load(t.ih)
  local s, l, paused, good = 0, 0, 0, true
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. t.ih)) do
    local kind, is_paused = check_member(t, raw(pidx), pidx)
    if kind == 's' then s = s + 1 elseif kind == 'l' then l = l + 1 else good = false end
    if is_paused then paused = paused + 1 end
  end
  for _, name in ipairs({ 's4', 'l4', 's6', 'l6' }) do good = good and check_slots(t, name, 0, t[name]) end
  if not good or s ~= t.seeders or l ~= t.leechers or paused ~= paused_count(t) or not check_bounds(t) then repair(t) end
end

-- A larger one in slices: its members, then the slots of its arrays; a slice is consistent in itself whatever
-- happens between. Answers where to go on, '' when done.
local function visit_members(t, tid, cursor)
  local page = call('SSCAN', P .. 'tpeers:' .. t.ih, cursor, 'COUNT', budget)
  seen = seen + #page[2]
  for _, pidx in ipairs(page[2]) do
    local pid = raw(pidx)
    local one = reap(tid, pid, pidx)
    reaped = reaped + one
    if one == 1 then
      t = load(t.ih)
    elseif call('SISMEMBER', P .. 'tpeers:' .. t.ih, pidx) == 1 and not check_member(t, pid, pidx) then
      repair(t)
      return ''
    end
  end
  return page[1] == '0' and 's4:0' or 'm:' .. page[1]
end

local function visit_slots(t, name, from)
  local till = math.min(t[name], from + budget)
  seen = seen + math.max(0, till - from)
  if from < till and not check_slots(t, name, from, till) then
    repair(t)
    return ''
  end
  if till < t[name] then return name .. ':' .. till end
  if name == 's4' then return 'l4:0' elseif name == 'l4' then return 's6:0' elseif name == 's6' then return 'l6:0' end
  if not check_bounds(t) then repair(t) end
  return ''
end

local function visit(tid, at)
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  local t = ih and load(ih)
  if not t or t.tid ~= tid then
    for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score' }) do call('ZREM', P .. 'i:' .. index, tid) end
    repairs = repairs + 1
    return ''
  end
  local members = call('SCARD', P .. 'tpeers:' .. ih)
  local name, position = string.match(at, '^(%w+):(%d+)$')
  if members == 0 then visit_empty(t) return '' end
  if members <= budget then visit_small(t, tid) return '' end
  if not name or name == 'm' then return visit_members(t, tid, position or '0') end
  return visit_slots(t, name, tonumber(position))
end

local done, at = 0, ARGV[8]
for i = 9, #ARGV do
  local ok, go_on = pcall(visit, ARGV[i], at)
  at = ok and go_on or ''
  if at ~= '' then break end
  done = done + 1
  if seen + done >= budget then break end
end
save_totals()
return { done, at, reaped, repairs, forgotten, seen }
