#!lua flags=allow-oom
-- sweep.lua: visits swarms, at most `budget` members a call: reaps members without a timeout, and repairs what
-- does not agree. Events may be lost and due lists too; this is the truth behind them.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] peer memory (s)   ARGV[3] hnr minimum (bytes)   ARGV[4] hnr threshold (s)
-- ARGV[5]   grace after an outage (s)   ARGV[6] forget empty torrents after (s)   ARGV[7] budget (members)
-- ARGV[8]   where to go on in the first torrent ('' from its start)   ARGV[9] what the store's clock should say (epoch
--           s; '' unknown)
-- ARGV[10..] torrent ids
-- Answer    { torrents done, where to go on in the next, peers removed, repairs, torrents forgotten, members seen,
--             not listed, torrents that could not be visited }; not listed: what note_unlisted in naming.lua finds. Nothing
--             is listed here: memory may be full
local P, now, memory = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local hnr_min, hnr_threshold, grace = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local forget_after, budget = tonumber(ARGV[6]), tonumber(ARGV[7])
local expected = ARGV[9]
local gap, heartbeat = unpack(redis.call('MGET', P .. 'gap', P .. 'heartbeat'))
--@ include gap.lua
--@ include clock.lua
--@ include swarm.lua
--@ include users.lua
--@ include reaping.lua
--@ include recount.lua
--@ include naming.lua
--@ include forgetting.lua

local reaped, repairs, forgotten, seen, failed = 0, 0, 0, 0, 0
local unlisted = {}

local function repair(t)
  rebuild(t)
  repairs = repairs + 1
end

-- A torrent nobody registered by hand, or that the site deleted, is kept for a while after its last peer. One that was
-- seen in many places takes several calls to forget; the answer is where to go on then.
local function visit_empty(t)
  if not check_bounds(t) then
    repair(t)
    return ''
  end
  if call('HGET', t.key, 'auto') ~= '1' and call('EXISTS', P .. 'info_hash:' .. t.ih) == 1 then return '' end
  local since = tonumber(call('HGET', t.key, 'empty_since') or '')
  if not since then
    call('HSET', t.key, 'empty_since', now)
  elseif now - since >= forget_after then
    if not forget(t) then return 'forget:0' end
    forgotten = forgotten + 1
  end
  return ''
end

-- A swarm that fits into one call is counted exactly.
local function visit_small(t, tid)
  local members = call('SMEMBERS', P .. 'tpeers:' .. t.ih)
  seen = seen + #members
  local timeouts = {}
  for i, pidx in ipairs(members) do timeouts[i] = P .. 'ptimeout:' .. tid .. ':' .. pidx end
  local alive = call('MGET', unpack(timeouts))
  for i, pidx in ipairs(members) do
    if not alive[i] then reaped = reaped + remove_silent(tid, nil, pidx) end
  end
  settle()
  t = load(t.ih)
  if not agrees(t) then repair(t) end
end

-- A larger one in slices: its members, then the slots of its arrays; a slice is consistent in itself whatever
-- happens between. Who is seen is counted on the way (`tally`: seeders, leechers, paused, announces at the beginning);
-- where that is further from the counts than announces in between explain, all of it is counted at once.
local function visit_members(t, tid, position)
  local cursor, s, l, paused, since = string.match(position, '^(%d+),(%d+),(%d+),(%d+),(%d+)$')
  local announces = tonumber(call('HGET', t.key, 'announces') or '') or 0
  s, l, paused, since = tonumber(s) or 0, tonumber(l) or 0, tonumber(paused) or 0, tonumber(since) or announces
  local page = call('SSCAN', P .. 'tpeers:' .. t.ih, cursor or '0', 'COUNT', budget)
  seen = seen + #page[2]
  for _, pidx in ipairs(page[2]) do
    local pid = raw(pidx)
    local one = reap(tid, pid, pidx)
    reaped = reaped + one
    if one == 1 then
      settle()
      t = load(t.ih)
    elseif call('SISMEMBER', P .. 'tpeers:' .. t.ih, pidx) == 1 then
      local kind, is_paused = check_member(t, pid, pidx)
      if not kind then
        repair(t)
        return ''
      end
      if kind == 's' then s = s + 1 else l = l + 1 end
      if is_paused then paused = paused + 1 end
    end
  end
  if page[1] ~= '0' then return string.format('m:%s,%.0f,%.0f,%.0f,%.0f', page[1], s, l, paused, since) end
  local off = math.abs(s - t.seeders) + math.abs(l - t.leechers) + math.abs(paused - paused_count(t))
  if off > 3 * (announces - since) and not agrees(t) then
    repair(t)
    return ''
  end
  return 's4:0'
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
    -- Only what is still ranked is wrong: a torrent may be forgotten between the page of ids and the visit.
    local ranked = 0
    for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do
      ranked = ranked + call('ZREM', P .. 'i:' .. index, tid)
    end
    redis.pcall('ZREM', P .. 'i:info_hash', tid)
    if ranked > 0 then repairs = repairs + 1 end
    return ''
  end
  if at == '' then pcall(note_unlisted, t, unlisted) end
  local members = call('SCARD', P .. 'tpeers:' .. ih)
  local name, position = string.match(at, '^(%w+):(.+)$')
  if members == 0 then return visit_empty(t) end
  if members <= budget then visit_small(t, tid) return '' end
  if not name or name == 'm' or name == 'forget' then return visit_members(t, tid, position or '') end
  return visit_slots(t, name, tonumber(position))
end

local done, at = 0, ARGV[8]
for i = 10, #ARGV do
  local ok, go_on = pcall(visit, ARGV[i], at)
  settle()
  if not ok then failed = failed + 1 end
  at = ok and go_on or ''
  if at ~= '' then break end
  done = done + 1
  if seen + done >= budget then break end
end
return { done, at, reaped, repairs, forgotten, seen, unlisted, failed }
