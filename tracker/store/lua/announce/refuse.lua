-- refuse.lua: whether a user and a torrent may take the announce, and the user's totals. Reads the user's row; writes
-- `u:<uid>` when all else is written, and `u:<uid>:unregistered`.

function refuse(code, reason)
  return { 1, code, reason or '' }
end

-- How rows of users are read: `read_regular` for regular announces, as HMGET reads fields. Where there are groups, both
-- note the user's group, and for a regular announce a user whose group may not announce has no row.
local groups, read_row

local function read_with_group(_, key, ...)
  local row = call('HMGET', key, 'group', ...)
  user_group = find_group(table.remove(row, 1), groups)
  return row
end

-- With two, three or five fields: a list of any length would cost as much as the command.
local function read_regular_with_group(_, key, a, b, c, d, e)
  local row, id
  if not c then
    row = call('HMGET', key, a, b, 'group')
    id = row[3]
  elseif not d then
    row = call('HMGET', key, a, b, c, 'group')
    id = row[4]
  else
    row = call('HMGET', key, a, b, c, d, e, 'group')
    id = row[6]
  end
  user_group = id and find_group(id, groups)
  if user_group and (user_group.may_announce == '0' or user_group.can_leech == '0' and c == 'can_leech') then
    row[1] = false
  end
  return row
end

-- Before each call, with the text of the groups; nil or empty for none.
function use_groups(text)
  groups, user_group, read_row, read_regular = text, nil, call, call
  if rules.hidden then rules.hidden = nil end
  if not text or text == '' then return end
  read_row, read_regular, rules.hidden = read_with_group, read_regular_with_group, find_group('hidden', text)
  if rules.hidden then removing = removing or ' ' end -- replies are filtered as while peers are removed
end

-- The user of a passkey: the id, '' for an anonymous announce, or false and the code of the refusal. The third value is
-- true for an anonymous announce with an unknown passkey; with a refusal it is the operator's reason, if there is one.
-- The fourth holds the fields of the user's row: those that could refuse the announce, and the multipliers.
function authorize(passkey, left, event)
  if not accounts or passkey == '' and not rules.required then return '' end
  local key, u = P .. 'user:' .. passkey
  if event == 'x' then -- a goodbye needs no permission
    u = read_row('HMGET', key, 'user_id', 'upload_multiplier', 'download_multiplier')
  elseif left == '0' then
    u = read_row('HMGET', key, 'user_id', 'upload_multiplier', 'download_multiplier', 'enabled')
  else
    u = read_row('HMGET', key, 'user_id', 'upload_multiplier', 'download_multiplier', 'enabled', 'can_leech',
      'max_downloads')
    if user_group and user_group.can_leech == '0' then u[5] = '0' end
  end
  if passkey == '' or not u[1] or u[1] == '' then
    if sums.asks and passkey ~= '' and event ~= 'q' then -- the user may have no copy in this shard yet
      sums.incomplete = sums.incomplete + 1
      return false, 'no copy'
    end
    if rules.required then return false, 'unknown passkey' end
    return '', nil, true
  end
  if u[4] == '0' then return false, 'user disabled', call('HGET', key, 'reason') or nil end
  if user_group and user_group.may_announce == '0' and event ~= 'x' then return false, 'group may not announce' end
  if u[5] == '0' then return false, 'may not leech' end
  return u[1], nil, nil, u
end

-- The same for a `stopped` whose passkey is unknown: the peer itself names its user. The passkey may be that of a user
-- who is deleted, who gets no credit any more, or one that was replaced within the timeout of an announce.
function authorize_stop(r)
  local tid = call('HGET', P .. 't:' .. r.ih, 'tid')
  local uid = tid and r.passkey ~= '' and call('HGET', P .. 'p:' .. tid .. ':' .. r.pidx, 'user_id')
  local passkey = uid and call('HGET', P .. 'u:' .. uid, 'passkey')
  if not passkey then return end
  if passkey == r.passkey then return uid end
  local v = call('HMGET', P .. 'user:' .. passkey, 'user_id', 'old_passkey', 'rotated')
  if v[1] ~= uid or v[2] ~= r.passkey or now - (tonumber(v[3] or '') or 0) > r.timeout / 1000 then return end
  r.passkey = passkey
  return authorize(passkey, r.left, 'x')
end

-- A user downloads at most `max_downloads` torrents at once (0: any number): the user's own number, else that of the
-- group, else that of the rules. True when a join would be one download too many. Downloads are the incomplete torrents
-- on which the user is active; a second peer of the user on one of these is no further download, and neither is the v2
-- half of a hybrid torrent beside the v1 half.
function has_max_downloads(r, tid)
  if r.uid == '' or r.left == '0' then return false end
  local own = r.user[6]
  if not tonumber(own or '') then own = user_group and user_group.max_downloads end
  local limit = tonumber(own or '') and whole_field(own) or rules.max_downloads
  if limit == 0 then return false end
  if r.moves_only then
    tid = call('GET', P .. 'info_hash:' .. r.v1)
    if not tid then return false end -- it is in another shard
  end
  local user = P .. 'u:' .. r.uid
  local downloads = call('SINTERCARD', 2, user .. ':active', user .. ':incomplete', 'LIMIT', decimal(limit))
  return downloads >= limit and call('SISMEMBER', user .. ':active', tid or '') == 0
end

local KEPT_SECONDS, FIRST_SECONDS, MAX_UNREGISTERED = 7776000, 600, 100

-- When the user first tried the torrent; keeps it as tried now if that is unknown. nil where nothing may be written.
local function first_tried(r)
  local key = P .. 'u:' .. r.uid .. ':unregistered'
  local since = tonumber(call('ZSCORE', key, r.ih) or '')
  if since and since >= now - KEPT_SECONDS then return since end
  if not may_grow then return nil end
  call('ZREMRANGEBYSCORE', key, '-inf', now - KEPT_SECONDS)
  call('ZREMRANGEBYRANK', key, 0, -MAX_UNREGISTERED)
  call('ZADD', key, now, r.ih)
  call('EXPIRE', key, KEPT_SECONDS)
  return now
end

-- Who uploads a torrent often starts seeding before the site has registered it: the first refusals are retried soon.
function refuse_unregistered(r)
  local is_user = #r.uid <= 15 and find(r.uid, '^[1-9]%d*$') -- not '', and no invalid id that a site wrote
  if not is_user or r.of_v2 or r.event == 'x' or r.event == 'q' then return refuse('unknown torrent') end
  local ok, since = pcall(first_tried, r) -- a key of a wrong type
  return refuse(ok and since and now - since < FIRST_SECONDS and 'unknown torrent at first' or 'unknown torrent')
end

-- What the announce needs of `u:<uid>`, and what it changes there: save_user() writes that last. Read before the first
-- write, so that a key of a wrong type fails here. `lists`: whether an answer with peers needs budget. Only what can
-- change the outcome is read; the answer to a join has the multipliers, and so the token.
local user, fields, names = { writes = {} }, {}, {}
function load_totals(r, p, tid, lists)
  local u, n, joins, up = user, 0, not p.active, p.up > 0
  local down = p.down > 0 or p.restarted and r.downloaded ~= '0'
  u.key, u.n, u.lists, u.list_field = P .. 'u:' .. r.uid, 0, false, r.left == '0' and 'lists_s' or 'lists_l'
  u.uploaded, u.downloaded, u.credited_up, u.credited_down, u.token = nil, nil, nil, nil, nil
  if joins then fields[1], names[1], n = 'passkey', 'passkey', 1 end
  if joins or down then fields[n + 1], names[n + 1], n = 'freeleech:' .. (tid or ''), 'token', n + 1 end
  if up then
    fields[n + 1], fields[n + 2], names[n + 1], names[n + 2], n =
      'uploaded', 'credited_up', 'uploaded', 'credited_up', n + 2
  end
  if down then
    fields[n + 1], fields[n + 2], names[n + 1], names[n + 2], n =
      'downloaded', 'credited_down', 'downloaded', 'credited_down', n + 2
  end
  if lists then fields[n + 1], names[n + 1], n = u.list_field, 'lists', n + 1 end
  if n > 0 then
    local v = call('HMGET', u.key, unpack(fields, 1, n))
    for i = 1, n do u[names[i]] = v[i] end
  end
  return u
end

function write_total(u, field, value)
  u.writes[u.n + 1], u.writes[u.n + 2], u.n = field, value, u.n + 2
end

function save_user(u)
  if u.n > 0 then call('HSET', u.key, unpack(u.writes, 1, u.n)) end
end

-- The budget of answers with peers to joins and early announces of a user: at once, by the minute, and by the day; a
-- seeder's is a quarter. It is stored as the time up to which it is used (epoch ms), the day and how many it had that
-- day. Returns whether there was budget, and takes one from it.
local SEEDER_SHARE = 4
function take_list(u)
  local share = u.list_field == 'lists_s' and SEEDER_SHARE or 1
  local used, day, count = match(u.lists or '', '^(%d+) (%d+) (%d+)$')
  local clock, today = (moment + clock_back) * 1000, floor(now / 86400)
  used, count = tonumber(used) or 0, tonumber(day) == today and tonumber(count) or 0
  if rules.lists_per_day > 0 and count >= rules.lists_per_day / share then return false end
  if rules.lists_at_once > 0 and rules.lists_per_minute > 0 then
    local step = 60000 * share / rules.lists_per_minute
    local earliest = clock - step * max(1, floor(rules.lists_at_once / share))
    if used < earliest or used > clock + 1000 * CLOCK_SLACK then used = earliest end
    if used + step > clock then return false end
    used = used + step
  end
  write_total(u, u.list_field, format('%.0f %d %d', used, today, count + 1))
  return true
end
