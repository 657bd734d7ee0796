-- snatch.lua: which announces complete a torrent, and what a completion counts. Writes the torrent's snatches, the
-- peer's `completed`, and of a user the account's `completed_at` and the user's snatches.

-- Which announces count as a snatch: those of a leecher that has all now; `completed` may have been lost. Some clients
-- send that at each start. Of another peer it counts for a user who was a leecher, once. A torrent keeps the last
-- anonymous completions for a day, in hex: 10 digits of a digest of the peer id, 10 of one of the endpoint, 8 of time.
function is_completion(r, p, a)
  if r.left ~= '0' then return false end
  if p.known and p.left ~= '0' then return true end
  return r.event == 'c' and a
    and (a.leeched or redis.pcall('SISMEMBER', P .. 'u:' .. r.uid .. ':incomplete', a.tid) == 1)
end

-- True when a peer with this id or this endpoint completed the torrent within the last day; if not, notes it.
local function completed_recently(t, r)
  local day, most, size = 86400, 64, 28
  local id, endpoint = sub(redis.sha1hex(t.ih .. r.pid), 1, 10), sub(redis.sha1hex(t.ih .. r.endpoint), 1, 10)
  local stored, kept = call('HGET', t.key, 'completions') or '', {}
  for at = 1, #stored - size + 1, size do
    local one = sub(stored, at, at + size - 1)
    local when = tonumber(sub(one, 21), 16)
    if when and when > now - day and when <= now + CLOCK_SLACK then
      if sub(one, 1, 10) == id or sub(one, 11, 20) == endpoint then return true end
      kept[#kept + 1] = one
    end
  end
  kept[#kept + 1] = id .. endpoint .. format('%08x', now)
  call('HSET', t.key, 'completions', table.concat(kept, '', max(1, #kept - most + 1)))
  return false
end

-- Returns true when the completion counts. `completed:<tid>` keeps the users who completed it last, 20 to 40: it is cut
-- every 20 snatches.
function count_snatch(t, r, p, a)
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
  if not accounts then return true end
  local completers, most = P .. 'completed:' .. t.tid, 20
  if r.uid ~= '' then redis.pcall('ZADD', completers, now, r.uid) end
  if t.snatches % most == 0 then redis.pcall('ZREMRANGEBYRANK', completers, 0, -most - 1) end
  return true
end
