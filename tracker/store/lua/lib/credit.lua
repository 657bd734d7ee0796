-- credit.lua: what an announce adds to the totals of its user. After accounts.lua, account_time.lua, counters.lua and
-- multipliers.lua; needs `moment` (epoch s, with fractions), `max_credit` and `max_user_credit` (bytes per second),
-- `max_saved` (s), CLOCK_SLACK, and of outage.lua `outage_from`, `outage_until` and `clock_back`, the sum of all steps
-- back (s).
--
-- All but load_credited_account() runs after the first write of an announce and must not fail: totals are changed by
-- add_bounded(), and a user's set of a wrong type is left as it is.
--
-- Credit is limited by rates. `credited` of an account, and `credited_up` and `credited_down` of a user (epoch ms), are
-- the times up to which the rate is used up. At most rate * (now - that time) bytes can be credited, and crediting
-- bytes moves the time by bytes / rate. These times are on a clock that goes on where the tracker's is set back.
local credit_clock = moment + clock_back

-- The user's account on the torrent, with the user's own limits; false for an anonymous announce. It is read before
-- the first write, so that a key of a wrong type fails here. `fields` are those of load_account().
local function load_credited_account(r, tid, fields)
  if r.uid == '' then return false end
  local a = load_account(r.uid, tid, fields)
  a.user = call('HMGET', P .. 'u:' .. r.uid, 'credited_up', 'credited_down', 'freeleech:' .. tid)
  return a
end

-- Adds at most `max_bytes` to a total of the user and returns what was added. `stats:credit_cut` counts the rest.
local function credit(user, total, bytes, multiplier, max_bytes)
  local earned = bytes * multiplier
  max_bytes = math.floor(max_bytes)
  if earned > max_bytes then
    add_bounded(P .. 'stats:credit_cut', nil, math.min(earned - max_bytes, MAX_EXACT))
    earned = max_bytes
  end
  earned = math.floor(math.min(earned, MAX_EXACT))
  if earned > 0 then add_bounded(user, total, earned) end
  return earned
end

-- The stored time up to which credit was given, or `otherwise`; at most `max_age` seconds ago.
local function credited_until(text, otherwise, max_age)
  local since = text and whole(text) / 1000
  if not since or since > credit_clock + CLOCK_SLACK then since = otherwise end
  return math.max(since, credit_clock - max_age)
end

-- The same time after `bytes` more, as it is stored.
local function advance(since, bytes, rate)
  return math.ceil((since + bytes / rate) * 1000)
end

-- By how much the clock may have been set back since `last`: times between both ends of a step back are from before it
-- or from after it.
local function unknown_step_back(last)
  return last > outage_until and last <= outage_from and outage_from - outage_until or 0
end

-- Credits what a peer has transferred since its last announce. Three limits hold: one for the peer, one for the user on
-- this torrent, and one for the user on all torrents.
local function credit_transfer(user, a, up, down, up_multiplier, down_multiplier, elapsed)
  local own = math.min(now, math.max(0, moment - now + elapsed) + unknown_step_back(now - elapsed))
  local here = credited_until(a.credited, credit_clock - own, math.max(own, max_saved))
  local ups, downs = credited_until(a.user[1], 0, max_saved), credited_until(a.user[2], 0, max_saved)
  local max_here = max_credit * math.max(0, math.min(own, credit_clock - here))
  local max_up = math.min(max_here, max_user_credit * math.max(0, credit_clock - ups))
  local max_down = math.min(max_here, max_user_credit * math.max(0, credit_clock - downs))
  local gained = credit(user, 'uploaded', up, up_multiplier, max_up)
  local charged = credit(user, 'downloaded', down, down_multiplier, max_down)
  if gained + charged == 0 then return end
  a.credited = advance(here, math.max(gained, charged), max_credit)
  call('HSET', user, 'credited_up', advance(ups, gained, max_user_credit),
    'credited_down', advance(downs, charged, max_user_credit))
end

-- Bytes left as a number; nil when unknown: not sent, or the placeholder that clients send before they have metadata.
local function known_left(left)
  local bytes = left ~= '16384' and tonumber(left or '')
  return bytes and bytes < MAX_EXACT and bytes or nil
end

-- By how much `left` fell: since the last announce of an active peer, else since the user's last announce.
local function fall_of_left(r, p, a)
  local left, before = known_left(r.left), known_left(a.left)
  if p.active then before = known_left(p.left) end
  if left and not (p.active and left == before) then a.left = r.left end
  return left and before and math.max(0, before - left) or 0
end

-- Counts by how much `left` fell beyond the reported download. The cause is a client that reports no download, or data
-- from another source. Operators see the number; it is charged to nobody.
local function note_unreported(user, a, bytes)
  local before = math.max(0, a.unreported)
  a.unreported = math.max(-MAX_EXACT, math.min(MAX_EXACT, a.unreported + bytes))
  local grown = math.max(0, a.unreported) - before
  if grown ~= 0 then add_bounded(user, 'unreported', grown) end
end

-- Credits the announce to its user. A peer that was not known, or whose counter restarted, has downloaded what it
-- reports, as far as `left` fell meanwhile. `started` credits no upload: what preceded it is unknown.
local function credit_user(t, r, p, a)
  local user, started, settled = P .. 'u:' .. r.uid, r.event == 's', is_settled(a)
  local up, down, first, fall = started and 0 or p.up, p.down, 0, fall_of_left(r, p, a)
  if not p.known or tonumber(r.downloaded) < (tonumber(p.stored[4] or '') or 0) then
    first = math.min(tonumber(r.downloaded), fall)
  end
  a.uploaded, a.downloaded = math.min(MAX_EXACT, a.uploaded + up), math.min(MAX_EXACT, a.downloaded + down + first)
  add_bounded(user, 'announces', 1)
  if fall ~= down + first then note_unreported(user, a, fall - down - first) end
  if up + down + first > 0 then
    local up_multiplier = up > 0 and upload_multiplier(t, r) or 1
    local down_multiplier = down + first > 0 and download_multiplier(t, r, a) or 1
    if first > 0 then credit(user, 'downloaded', first, down_multiplier, MAX_EXACT) end
    if up + down > 0 then credit_transfer(user, a, up, down, up_multiplier, down_multiplier, p.elapsed) end
    if t.user_downloaded and down + first > 0 then add_bounded(t.key, 'user_downloaded', down + first) end
  end
  if not p.active and a.peers == 0 and (started or not p.known) then a.credited = advance(credit_clock, 0, 1) end
  if p.time > 0 then add_time(a, now - p.time, now, p.kind == 's') end
  if not settled and is_settled(a) and redis.pcall('SREM', user .. ':hnr', a.tid) == 1 then
    rank_hit_and_runs(a.uid)
    record_hit_and_run('hit_and_run_cleared', a)
  end
end

-- Adds the torrent to the user's sets. A torrent that is complete for a user stays so.
local function update_user_sets(t, r, a, joining)
  local user = P .. 'u:' .. r.uid
  if joining or a.peers == 0 then -- an account without peers was deleted and created again meanwhile
    if hnr_grace > 0 and a.peers == 0 and a.downloaded > hnr_min then -- the user came back
      redis.pcall('ZREM', P .. 'i:hnr_pending', a.uid .. ':' .. a.tid)
    end
    a.peers = a.peers + 1
    redis.pcall('SADD', user .. ':active', t.tid)
  end
  if r.kind == 's' then
    redis.pcall('SREM', user .. ':incomplete', t.tid)
    redis.pcall('SADD', user .. ':complete', t.tid)
  elseif joining and redis.pcall('SISMEMBER', user .. ':complete', t.tid) == 0 then
    redis.pcall('SADD', user .. ':incomplete', t.tid)
  end
end
