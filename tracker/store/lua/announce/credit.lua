-- credit.lua: what an announce adds to its user: totals, the account on the torrent, sets, snatches. Writes
-- `u:<uid>`, `u:<uid>:t:<tid>`, the user's sets and the torrent's snatches.
--
-- What is written after the first write of an announce must not fail: a value that is no number is overwritten, and a
-- set of a wrong type is left as it is. So keys of a wrong type fail when they are read, before the first write.
--
-- Credit is limited by rates. `credited` of an account, and `credited_up` and `credited_down` of a user (epoch ms), are
-- the times up to which the rate is used up. At most rate * (now - that time) bytes can be credited, and crediting
-- bytes moves the time by bytes / rate. These times are on a clock that goes on where the tracker's is set back.

-- Multipliers: a torrent, a user, the user's group and the whole tracker may each have rules for upload and for
-- download, such as `2 1790000000 donor, 1.5 gift`. Of all that have not ended the best counts: of upload the highest,
-- of download the lowest. But a torrent with a rule of 0 for each is neutral: nothing counts there.

-- The best of the rules in a text, by the text: many announces of a batch read the same. `zeros`: texts for upload that
-- hold a 0 beside something better. `numbers`: what was read, by its text, false for 1 and for text that is none, as
-- reading a number costs as much as a short command. `shown`: numbers as text. The last three are nil until needed.
local upload_of_all, download_of_all, multipliers
do
local best_ups, best_downs, zeros, numbers, shown, now_text

-- Before each call, with the rules for all users.
function forget_multipliers(up, down)
  best_ups, best_downs, zeros, numbers, shown, now_text = {}, {}, nil, nil, nil, nil
  upload_of_all, download_of_all = up, down
end

-- The multiplier of a rule without a name that applies now; false for none, which 1 means as well; nil for text of
-- another form. Nearly all texts are such a rule.
local function read_plain(text)
  if #text > MAX_RULES_BYTES then return false end
  local value, ends = match(text, '^([%d.]+) ?(%d*)$')
  if not value then return end
  now_text = now_text or decimal(now)
  if #ends == #now_text then
    if ends <= now_text then return false end
  elseif ends ~= '' and (#ends > 12 or tonumber(ends) <= now) then
    return false
  end
  numbers = numbers or {}
  local number = numbers[value]
  if number == nil then
    number = tonumber(value) or false
    if number and (number == 1 or number > 1000) then number = false end
    numbers[value] = number
  end
  return number
end

local function read_rules(text, known)
  local best, number = false, 0
  for rule in string.gmatch(text, '[^,]+') do
    local value, ends = parse_rule(rule)
    number = number + 1
    if number > MAX_RULES then break end
    if value and value ~= 1 and not (ends and ends <= now) then
      if value == 0 and known == best_ups then
        zeros = zeros or {}
        zeros[text] = true
      end
      if not best or known == best_ups and value > best or known == best_downs and value < best then best = value end
    end
  end
  return best
end

-- The best of a text that several announces of a batch read. `known`: best_ups or best_downs.
local function shared_best(text, known)
  if not text then return end
  local best = known[text]
  if best == nil then
    best = read_plain(text)
    if best == nil then best = read_rules(text, known) end
    known[text] = best
  end
  return best
end

-- The same for a user's own: noting a rule that only this user has would cost more than reading it.
local function own_best(text, known)
  if not text then return end
  local best = known[text]
  if best == nil then
    best = read_plain(text)
    if best == nil then return shared_best(text, known) end
  end
  return best
end

-- The multipliers of upload and download, of the torrent, the user, the group and for all users. A freeleech token that
-- has not ended makes the download free.
function multipliers(multi_up, multi_dn, own_up, own_dn, token)
  if not (multi_up or multi_dn or own_up or own_dn or token or upload_of_all or download_of_all or user_group) then
    return 1, 1
  end
  local up, down = shared_best(multi_up, best_ups), shared_best(multi_dn, best_downs)
  if down == 0 and (up == 0 or zeros and zeros[multi_up or '']) then return 0, 0 end
  local own, of_all = own_best(own_up, best_ups), shared_best(upload_of_all, best_ups)
  if own and not (up and up > own) then up = own end
  if of_all and not (up and up > of_all) then up = of_all end
  own, of_all = own_best(own_dn, best_downs), shared_best(download_of_all, best_downs)
  if own and not (down and down < own) then down = own end
  if of_all and not (down and down < of_all) then down = of_all end
  if user_group then
    own = shared_best(user_group.upload_multiplier, best_ups)
    if own and not (up and up > own) then up = own end
    own = shared_best(user_group.download_multiplier, best_downs)
    if own and not (down and down < own) then down = own end
  end
  if token and whole(token) > now then down = 0 end
  return up or 1, down or 1
end

-- The answer to a join, with the multipliers that apply, for the warning to the client.
function with_multipliers(t, r, a, answer)
  local up, down = multipliers(t.multi_up, t.multi_dn, r.user[2], r.user[3], a.user.token)
  if up == 1 and down == 1 then return answer end
  shown = shown or {}
  shown[up], shown[down] = shown[up] or format('%.6g', up), shown[down] or format('%.6g', down)
  return { 3, answer, shown[up], shown[down] }
end
end

-- A number rounded up: math.ceil() would cost a call.
local function round_up(number)
  return number + -number % 1
end

-- How much of `earned` bytes the user's limit lets through, at most `most`; what is cut; and the time up to which the
-- limit is used up then. `credited` is that time as it is stored.
local function limit_user(earned, credited, most)
  local clock = moment + clock_back
  local since, earliest = credited and (tonumber(credited) or 0) / 1000 or 0, clock - rules.max_saved
  if since ~= since or since < earliest or since > clock + CLOCK_SLACK then since = earliest end
  local allowed = rules.max_user_credit * (clock - since)
  if allowed > most then allowed = most end
  if earned <= allowed then
    earned = earned - earned % 1
    return earned, 0, round_up((since + earned / rules.max_user_credit) * 1000)
  end
  allowed = allowed > 0 and allowed - allowed % 1 or 0
  return allowed, min(earned - allowed, MAX_EXACT), round_up((since + allowed / rules.max_user_credit) * 1000)
end

-- Credits what a peer has transferred since its last announce, within three limits: one for the peer, one for the user
-- on this torrent, and one for the user on all torrents. Returns the bytes credited up and down and the bytes cut, and
-- then the times up to which the limits are used up, nil for one that has not changed.
-- `credited`: nil when the limit of the user on this torrent is not kept.
local function limit_credit(credited, credited_up, credited_down, up, down, elapsed)
  local own, last, rate = moment - now + elapsed, now - elapsed, rules.max_credit
  if own < 0 then own = 0 end
  -- Times between both ends of a step back are from before it or from after it.
  if outage_from > outage_until and last > outage_until and last <= outage_from then
    own = own + outage_from - outage_until
  end
  if own > now then own = now end
  local most, here = own, nil
  if credited ~= nil then
    local clock, longest = moment + clock_back, own > rules.max_saved and own or rules.max_saved
    local since = credited and (tonumber(credited) or 0) / 1000
    here = since and since <= clock + CLOCK_SLACK and since or clock - own
    if here ~= here or here < clock - longest then here = clock - longest end
    if clock - here < most then most = clock - here end
  end
  most = most > 0 and rate * most or 0
  if most > MAX_EXACT then most = MAX_EXACT end
  local gained, charged, cut, more, up_until, down_until = 0, 0, 0, 0, nil, nil
  if up > 0 then gained, cut, up_until = limit_user(up, credited_up, most) end
  if down > 0 then charged, more, down_until = limit_user(down, credited_down, most) end
  if here and gained + charged > 0 then here = round_up((here + max(gained, charged) / rate) * 1000) else here = nil end
  return gained, charged, cut + more, here, up_until, down_until
end

-- Counts what a limit has cut: for the user, for the user on the torrent, and in all.
local function note_cut(uid, tid, cut)
  add_bounded(P .. 'stats:credit_cut', nil, cut)
  add_bounded(P .. 'u:' .. uid, 'credit_cut', cut)
  add_bounded(P .. 'u:' .. uid .. ':t:' .. tid, 'credit_cut', cut)
end

-- Bytes left as a number; nil when unknown: not sent, or the placeholder that clients send before they have metadata.
local function known_left(left)
  local bytes = left ~= '16384' and tonumber(left or '')
  return bytes and bytes < MAX_EXACT and bytes or nil
end

-- Counts by how much `left` fell beyond the reported download; `held` is the account's sum before. The cause is a
-- client that reports no download, or data from another source. Operators see the number; no user is charged for it.
local function note_unreported(user, held, bytes)
  local grown = max(0, min(MAX_EXACT, held + bytes)) - max(0, held)
  if grown ~= 0 then add_bounded(user, 'unreported', grown) end
end

-- By how much `left` fell beyond the reported downloads, by `bytes` more. Rarely needed, so it may not be read yet.
local function add_unreported(a, bytes)
  local v = a.stored
  if v[10] == nil then v[10] = call('HGET', a.key, 'unreported') end
  local held = max(-MAX_EXACT, min(MAX_EXACT, whole(v[10])))
  a.unreported = max(-MAX_EXACT, min(MAX_EXACT, held + bytes))
  return held
end

local function settle(a)
  if redis.pcall('SREM', P .. 'u:' .. a.uid .. ':hnr', a.tid) ~= 1 then return end
  rank_hit_and_runs(a.uid)
  feed.record_hit_and_run('hit_and_run_cleared', a)
end

-- A regular announce of a user, whose only peer on the torrent it is. The account's `until` may be older than the
-- peer's last announce: the time of an only peer overlaps with none. Numbers that another program wrote in another form
-- are left to credit_user(): an error is no regular announce.
local regular = {} -- what save_changed() writes

-- A stored total and more.
function plus(held, more)
  if not held then return more end
  local sum = held + more
  if sum < more or sum > MAX_EXACT or sum % 1 ~= 0 then error('no total') end
  return sum
end

-- The account's total time, and of a seeder its seed time; nil when the announce is not a regular one. `ruled`: the
-- torrent or the user has a multiplier.
function load_regular(account, uid, tid, seeding, stored, left, up, down, time, ruled)
  local a
  ruled = ruled or upload_of_all or download_of_all or user_group
  if ruled then
    a = call('HMGET', account, unpack(field_lists.ruled_account))
  elseif not seeding or rules.limits_here or hnr_ratio > 0 then
    a = call('HMGET', account, unpack(field_lists.account))
  else
    a = call('HMGET', account, 'peers', 'total_time', 'seed_time', 'uploaded')
  end
  if a[1] ~= '1' then return end
  local w = regular
  w.user, w.uid, w.tid = P .. 'u:' .. uid, uid, tid
  w.uploaded, w.downloaded = up > 0 and plus(a[4], up), down > 0 and plus(a[5], down)
  w.credited, w.left, w.unreported, w.gained, w.charged, w.cut = a[ruled and 9 or 7], nil, nil, nil, nil, 0
  w.extra_up, w.extra_dn, w.held_up, w.held_dn, w.ruled = 0, 0, ruled and a[7], ruled and a[8], ruled
  w.by_ratio = hnr_ratio > 0 and up > 0 and (a[4] or 0) + 0 < hnr_ratio * (a[5] or 0)
    and (a[4] or 0) + up >= hnr_ratio * ((a[5] or 0) + down)
  if not seeding then
    local before, after = known_left(stored[2]), known_left(left)
    local bytes = before and after and before > after and before - after - down or -down
    if after and after ~= before then w.left = left end
    if bytes ~= 0 then
      w.more, w.held = bytes, max(-MAX_EXACT, min(MAX_EXACT, whole(a[6])))
      w.unreported = max(-MAX_EXACT, min(MAX_EXACT, w.held + bytes))
    end
  end
  return plus(a[2], time), seeding and plus(a[3], time)
end

-- Decides what the user's totals gain.
function credit_regular(tid, up, down, elapsed, multi_up, multi_dn, own_up, own_dn)
  local w, u = regular
  if down > 0 then
    u = call('HMGET', w.user, 'uploaded', 'credited_up', 'downloaded', 'credited_down', 'freeleech:' .. tid)
  else
    u = call('HMGET', w.user, 'uploaded', 'credited_up')
  end
  local up_multiplier, down_multiplier =
    multipliers(multi_up, multi_dn, up > 0 and own_up, down > 0 and own_dn, u[5])
  local gained, charged
  gained, charged, w.cut, w.credited, w.credited_up, w.credited_down =
    limit_credit(w.credited, u[2], u[4], up * up_multiplier, down * down_multiplier, elapsed)
  w.gained, w.charged = gained > 0 and plus(u[1], gained), charged > 0 and plus(u[3], charged)
  w.extra_up, w.extra_dn = gained - up, charged - down
end

-- `torrent` is the torrent's key; `user_downloaded` is set when it counts what users download.
function save_changed(account, total_time, seed_time, torrent, down, user_downloaded)
  local w, fields, n = regular, { 'total_time', total_time, nil, nil, nil, nil, nil, nil }, 2
  if seed_time then fields[3], fields[4], n = 'seed_time', seed_time, 4 end
  if w.uploaded then fields[n + 1], fields[n + 2], n = 'uploaded', w.uploaded, n + 2 end
  if w.downloaded then fields[n + 1], fields[n + 2], n = 'downloaded', w.downloaded, n + 2 end
  if w.left then fields[n + 1], fields[n + 2], n = 'left', w.left, n + 2 end
  if w.unreported then fields[n + 1], fields[n + 2], n = 'unreported', w.unreported, n + 2 end
  if rules.limits_here and (w.gained or w.charged) then
    fields[n + 1], fields[n + 2], n = 'credited', w.credited, n + 2
  end
  if w.ruled then
    if w.extra_up ~= 0 then fields[n + 1], fields[n + 2], n = 'extra_up', whole(w.held_up) + w.extra_up, n + 2 end
    if w.extra_dn ~= 0 then fields[n + 1], fields[n + 2], n = 'extra_dn', whole(w.held_dn) + w.extra_dn, n + 2 end
  else
    if w.extra_up ~= 0 then add_bounded(account, 'extra_up', w.extra_up) end
    if w.extra_dn ~= 0 then add_bounded(account, 'extra_dn', w.extra_dn) end
  end
  call('HSET', account, unpack(fields, 1, n))
  if w.gained and w.charged then
    call('HSET', w.user, 'uploaded', w.gained, 'credited_up', w.credited_up, 'downloaded', w.charged,
      'credited_down', w.credited_down)
  elseif w.gained then
    call('HSET', w.user, 'uploaded', w.gained, 'credited_up', w.credited_up)
  elseif w.charged then
    call('HSET', w.user, 'downloaded', w.charged, 'credited_down', w.credited_down)
  end
  if w.unreported then note_unreported(w.user, w.held, w.more) end
  if w.cut > 0 then note_cut(w.uid, w.tid, w.cut) end
  if w.by_ratio then settle(load_account(w.uid, w.tid)) end
  if user_downloaded and down > 0 then add_bounded(torrent, 'user_downloaded', down) end
end

-- Clears a hit-and-run when the time of the announce made up for it.
function settle_regular(uid, tid, total_time, seed_time, time)
  if sharded then note_changed(uid) end
  local counted = hnr_by_seed ~= 1 and total_time or seed_time
  if counted and counted >= hnr_threshold and counted - time < hnr_threshold then settle(load_account(uid, tid)) end
end

-- The seconds of [from, till) that the account has not counted yet. Peers of one user overlap; the account remembers
-- the interval that it counted last, and only what lies outside that interval is new. One that ends later than now was
-- counted before the clock was set back.
local function cover(a, from, till)
  local new
  if not a.till or from >= a.till or a.till > till + CLOCK_SLACK then
    new = till - from
    if from ~= a.till then a.from = from end
    a.till = till
  else
    new = max(0, till - a.till) + max(0, a.from - from)
    a.from, a.till = min(a.from, from), max(a.till, till)
  end
  return max(0, new)
end

-- By how much `left` fell: since the last announce of an active peer, else since the user's last announce.
local function fall_of_left(r, p, a)
  local left, before = known_left(r.left), known_left(a.left)
  if p.active then before = known_left(p.left) end
  if left and not (p.active and left == before) then a.left = r.left end
  return left and before and max(0, before - left) or 0
end

-- The user's account on the torrent; false where nothing is credited. Read before the first write, too. A join without
-- traffic needs few of its fields, and a goodbye no completion.
function load_credited_account(r, u, tid, p)
  if r.uid == '' or r.moves_only then return false end
  local number, moved = nil, p.up + p.down > 0 or p.restarted and r.downloaded ~= '0'
  local completed = r.event == 'c' or p.known and p.left ~= '0' and r.left == '0'
  if r.event == 'x' and not completed then
    number = moved and 10 or 8
  elseif not (p.active or moved or completed) then
    number = hnr_grace > 0 and 3 or 2
  end
  local a = load_account(r.uid, tid, number, not p.active)
  a.user, a.passkey = u, r.passkey
  return a
end

-- By how much the credit differs from what the user moved, by multipliers and limits.
local function note_extra(a, name, by)
  if by == 0 then return end
  if a.stored[13] == nil then -- it was not read
    add_bounded(a.key, name, by)
  else
    a[name], a.has_new_extra = whole(a[name]) + by, true
  end
end

-- A total as another program may have left it, and more.
local function add_to(held, bytes)
  return min(MAX_EXACT, whole_field(held) + bytes)
end

-- Writes what the user's totals gain.
local function credit_transfer(t, r, a, up, down, first, elapsed)
  local u = a.user
  local up_multiplier, down_multiplier =
    multipliers(t.multi_up, t.multi_dn, up > 0 and r.user[2], down + first > 0 and r.user[3], u.token)
  local gained, charged, cut, here, up_until, down_until =
    limit_credit(a.credited, u.credited_up, u.credited_down, up * up_multiplier, down * down_multiplier, elapsed)
  charged = charged + floor(first * down_multiplier)
  if gained > 0 then write_total(u, 'uploaded', add_to(u.uploaded, gained)) end
  if charged > 0 then write_total(u, 'downloaded', add_to(u.downloaded, charged)) end
  if up_until then write_total(u, 'credited_up', up_until) end
  if down_until then write_total(u, 'credited_down', down_until) end
  note_extra(a, 'extra_up', gained - up)
  note_extra(a, 'extra_dn', charged - down - first)
  if cut > 0 then note_cut(r.uid, a.tid, cut) end
  if here then a.credited = here end
end

-- Credits the announce to its user. A peer that was not known, or whose counter restarted, has downloaded what it
-- reports, as far as `left` fell meanwhile. `started` credits no upload: what preceded it is unknown.
function credit_user(t, r, p, a)
  local started = r.event == 's'
  local up, down, first, fall = started and 0 or p.up, p.down, 0, fall_of_left(r, p, a)
  if p.restarted then first = min(tonumber(r.downloaded), fall) end
  local changed = up + down + first > 0 or p.time > 0
  local settled = changed and is_settled(a)
  a.uploaded, a.downloaded = min(MAX_EXACT, a.uploaded + up), min(MAX_EXACT, a.downloaded + down + first)
  local reported = down + first + p.again
  if fall ~= reported then
    note_unreported(a.user.key, add_unreported(a, fall - reported), fall - reported)
  end
  if up + down + first > 0 then
    credit_transfer(t, r, a, up, down, first, p.elapsed)
    if down + first > 0 and call('HEXISTS', t.key, 'user_downloaded') == 1 then
      add_bounded(t.key, 'user_downloaded', down + first)
    end
  end
  if not p.active and a.peers == 0 and (started or not p.known) then
    a.credited = round_up((moment + clock_back) * 1000)
  end
  if p.time > 0 then
    local new = cover(a, now - p.time, now)
    a.total_time = a.total_time + new
    if p.kind == 's' then a.seed_time = a.seed_time + new end
  end
  if changed and not settled and is_settled(a) then settle(a) end
end

-- Adds the torrent to the user's sets. A torrent that is complete for a user stays so. One that the user never had is
-- in no set yet.
local function update_user_sets(t, r, p, a)
  local user_key, joining, is_new = P .. 'u:' .. r.uid, not (p.active or p.alone), not a.stored[1]
  if is_new then a.first_seen = now end
  if joining or p.alone or a.peers == 0 then
    a.peer_ids = a.peer_ids or a.peers == 0 and r.pid or with_peer(a, r.pid)
  end
  if joining or a.peers == 0 then -- an account without peers was deleted and created again meanwhile
    if hnr_grace > 0 and a.peers == 0 and a.downloaded > hnr_min then -- the user came back
      redis.pcall('ZREM', P .. 'i:hnr_pending', a.uid .. ':' .. a.tid)
    end
    a.peers = a.peers + 1
    if a.peers == 1 then redis.pcall('SADD', user_key .. ':active', t.tid) end
  end
  if r.kind == 's' and (joining or p.kind ~= 's') then
    if not is_new then redis.pcall('SREM', user_key .. ':incomplete', t.tid) end
    redis.pcall('SADD', user_key .. ':complete', t.tid)
  elseif joining and r.kind ~= 's'
      and (is_new or redis.pcall('SISMEMBER', user_key .. ':complete', t.tid) == 0) then
    redis.pcall('SADD', user_key .. ':incomplete', t.tid)
  end
end

-- What an announce of a peer that stays or joins changes for its user, except the snatch.
function credit_announce(t, r, p, a)
  credit_user(t, r, p, a)
  update_user_sets(t, r, p, a)
  for _ = 1, r.evictions do end_activity(a, false) end
  if a.peers > 1 and a.peer_ids then mark_overlapping(a) end
  if r.left ~= '0' then a.leeched = '1' end
end

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
