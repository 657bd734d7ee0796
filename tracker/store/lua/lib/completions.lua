-- completions.lua: which announces of `completed` count as a snatch. After credit.lua.
--
-- Some clients send `completed` at each start for a torrent that they have. It counts for a peer that was a leecher
-- here; for a user who was a leecher on the torrent, once. An anonymous peer is deleted when it leaves, so a torrent
-- keeps the last anonymous completions for a day: 28 hex digits each, 10 of a digest of the peer id, 10 of one of the
-- endpoint, 8 of the time.
local DAY, MAX_COMPLETIONS, COMPLETION_SIZE = 86400, 64, 28
local COMPLETERS = 20 -- users kept in `completed:<tid>`

local function was_leecher(r, p, a)
  if p.known and p.left ~= '0' then return true end
  if a then return a.leeched or redis.pcall('SISMEMBER', P .. 'u:' .. r.uid .. ':incomplete', a.tid) == 1 end
  return p.active and call('HGET', p.at, 'leeched') == '1'
end

local function is_completion(r, p, a)
  return r.event == 'c' and r.left == '0' and was_leecher(r, p, a)
end

-- A leecher that became a seeder without `completed` may still send it later.
local function note_leecher(r, p, a)
  if a then
    if r.left ~= '0' then a.leeched = '1' end
  elseif p.active and p.left ~= '0' and r.left == '0' and r.event ~= 'c' then
    call('HSET', p.at, 'leeched', '1')
  end
end

-- True when a peer with this id or this endpoint completed the torrent within the last day; if not, notes it.
local function completed_recently(t, r)
  local id, endpoint = sub(redis.sha1hex(t.ih .. r.pid), 1, 10), sub(redis.sha1hex(t.ih .. r.endpoint), 1, 10)
  local stored, kept = call('HGET', t.key, 'completions') or '', {}
  for at = 1, #stored - COMPLETION_SIZE + 1, COMPLETION_SIZE do
    local one = sub(stored, at, at + COMPLETION_SIZE - 1)
    local when = tonumber(sub(one, 21), 16)
    if when and when > now - DAY and when <= now + CLOCK_SLACK then
      if sub(one, 1, 10) == id or sub(one, 11, 20) == endpoint then return true end
      kept[#kept + 1] = one
    end
  end
  kept[#kept + 1] = id .. endpoint .. string.format('%08x', now)
  call('HSET', t.key, 'completions', table.concat(kept, '', max(1, #kept - MAX_COMPLETIONS + 1)))
  return false
end

-- Notes who completed the torrent last; `uid` is '' for an anonymous peer. The set is cut every COMPLETERS snatches
-- only: it may hold twice as many.
local function note_completer(t, uid)
  local key = P .. 'completed:' .. t.tid
  if uid ~= '' then redis.pcall('ZADD', key, now, uid) end
  if t.snatches % COMPLETERS == 0 then redis.pcall('ZREMRANGEBYRANK', key, 0, -COMPLETERS - 1) end
end

-- Returns true when the completion counts.
local function count_snatch(t, r, p, a)
  if not a and counts_elsewhere(t.ih, call('HGET', t.key, 'hybrid_of')) then return end
  if call('HGET', p.at, 'completed') == '1' then return end
  call('HSET', p.at, 'completed', '1')
  if a then
    if a.completed_at then return end
    call('HSET', account_key(r.uid, t.tid), 'completed_at', now)
    add_bounded(P .. 'u:' .. r.uid, 'snatches', 1)
  elseif completed_recently(t, r) then
    return
  end
  t.snatches = add_bounded(t.key, 'snatches', 1)
  redis.pcall('ZADD', P .. 'i:snatches', t.snatches, t.tid)
  if accounts then note_completer(t, r.uid) end
  return true
end
