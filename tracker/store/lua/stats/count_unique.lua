#!lua
-- count_unique.lua: counts unique users, each address once in 30 days. The counts and the markers of counted addresses
-- are written together, and a second call with the same batch changes nothing, so a batch may be sent again when its
-- answer was lost. In mode hyperloglog no address is stored: the totals of all time and of the month are estimates
-- (standard error 0.81 %), and all are counted when the store is nearly full, as addresses take no memory.
-- ARGV[1]   now (epoch s)   ARGV[2] its month (UTC, YYYY-MM)   ARGV[3] when keys of that month expire (epoch s)
-- ARGV[4]   max statistics in the outbox (0: no receiver)   ARGV[5] '1': torrents are exported too
-- ARGV[6]   '1': cities and postcodes are exported too, not only countries
-- ARGV[7]   '1': the store is nearly full, so nothing is written and new addresses are not counted
-- ARGV[8]   the scopes of places in countries, with a space between them   ARGV[9] '1': mode hyperloglog
-- ARGV[10..] one event each, at most 64, packed (struct, big-endian): info hash (c40, hex) and, with a length before
--   each (B): user, country, and a place of each scope as the metrics name them, empty when unknown
-- Answer    { addresses new to a torrent (in mode hyperloglog: this month), keys of a wrong type, events that were not
--   counted because the store is nearly full }
--
-- A metric of the batch is a table: key, board (the scope of its leaderboard, or the key of its torrent's places),
-- member (its name there), torrent (false for a place of the world), total and month (by how much each grows).
local P, call, max_waiting = KEYS[1], redis.call, tonumber(ARGV[4])
--@ include lib/outbox.lua
local now, month, until_month = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local per_torrent, per_place = ARGV[5] == '1', ARGV[6] == '1'
local monthly = '.' .. month
local failed, new, skipped = 0, 0, 0
-- With several shards, each counts the users of its torrents. Places of the world are counted under the main prefix.
local counts_world = not string.find(P, ':{%d+%l+}:$')

-- A key of a wrong type fails only its own metric, and is counted.
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' then return answer end
  failed = failed + 1
end

local metrics, ordered = {}, {}

local function find_metric(key, board, member, torrent)
  local m = metrics[key]
  if m then return m end
  m = { key = key, board = board, member = member, torrent = torrent, total = 0, month = 0 }
  metrics[key] = m
  ordered[#ordered + 1] = m
  return m
end

-- Calls `note(metric, user, number of the event)` for each metric of each event.
local function read_events(note)
  local torrents, scopes, places, packed = {}, {}, { countries = {} }, '>c40Bc0Bc0'
  for scope in string.gmatch(ARGV[8], '%S+') do
    scopes[#scopes + 1], places[scope], packed = scope, {}, packed .. 'Bc0'
  end
  -- `member` is the location's name on the leaderboards, `name` the beginning of its metric.
  local function note_place(torrent, scope, member, name, user, i)
    local place = places[scope][member]
    if not place then
      local metric = counts_world and find_metric(P .. 'countries.' .. name .. '.users', scope, member, false)
      place = { scope .. '.' .. member, 'countries.' .. name .. '.users', metric }
      places[scope][member] = place
    end
    if place[3] then note(place[3], user, i) end
    if torrent then note(find_metric(torrent.head .. place[2], torrent.places, place[1], torrent), user, i) end
  end
  for i = 10, #ARGV do
    local event = { struct.unpack(packed, ARGV[i]) }
    local ih, user, country = event[1], event[2], event[3]
    if torrents[ih] == nil then -- a deleted one is not counted: nothing would ever delete its metrics
      torrents[ih] = call('EXISTS', P .. 't:' .. ih) == 1
        and { key = P .. 't:' .. ih, head = P .. 'torrents.' .. ih .. '.', places = P .. 'i:unique:torrents.' .. ih }
    end
    local torrent = torrents[ih]
    if torrent then note(find_metric(torrent.head .. 'users', 'torrents', ih, torrent), user, i) end
    if country ~= '' then
      note_place(torrent, 'countries', country, country, user, i)
      for n, scope in ipairs(scopes) do
        local name = event[3 + n]
        if name ~= '' then
          note_place(torrent, scope, country .. '/' .. name, country .. '.' .. scope .. '.' .. name, user, i)
        end
      end
    end
  end
end

-- Leaderboards are written once for the batch, with the new totals.
local boards, monthly_boards = {}, {}

local function add_to_board(all, board, total, member)
  local entries = all[board] or {}
  local n = #entries
  all[board] = entries
  entries[n + 1], entries[n + 2] = total, member
end

local function increment(m)
  local key = m.key
  m.total_now = call('INCRBY', key, m.total)
  key = key .. monthly
  m.month_now = call('INCRBY', key, m.month)
  if m.month_now == m.month then call('EXPIREAT', key, until_month) end
end

-- Adds to the total and the month of a metric, to both or to neither, ranks it, and updates what depends on it: the
-- outbox, and the torrent's count of new addresses. `m.failed`: a key is of a wrong type.
local function grow(m)
  if not pcall(increment, m) then
    if m.total_now then call('INCRBY', m.key, -m.total) end
    failed, m.failed = failed + 1, true
    return
  end
  add_to_board(boards, m.board, m.total_now, m.member)
  if not m.torrent or m.board == 'torrents' then add_to_board(monthly_boards, m.board, m.month_now, m.member) end
  local exported = m.torrent and per_torrent or not m.torrent and (per_place or m.board == 'countries')
  if m.total > 0 and exported and not pcall(export, now - now % 60, string.sub(m.key, #P + 1), m.total) then
    failed = failed + 1
  end
  if m.board == 'torrents' and m.month > 0 then
    try('HINCRBY', m.torrent.key, 'new', m.month)
    new = new + m.month
  end
end

local MARKER_SECONDS, MARKER_TEXT = 2592000, '2592000' -- as text too: each call would format a number

local function count_by_markers()
  -- One command reads all markers before the first write.
  local markers, owners, listed, events = {}, {}, {}, {}
  read_events(function(m, user, i)
    local marker = m.key .. '.' .. user
    if listed[marker] then return end
    local n = #markers + 1
    listed[marker], markers[n], owners[n], events[n] = true, marker, m, i
  end)

  -- An address counts when it has no marker, or a marker older than 30 days. A marker of the future was written before
  -- the clock was set back: the address does not count again, and the marker expires.
  local fresh, last = {}, 0
  local seen = #markers > 0 and call('MGET', unpack(markers)) or {}
  for i, m in ipairs(owners) do
    local at = seen[i] and tonumber(seen[i])
    if not at or now - at >= MARKER_SECONDS then
      if ARGV[7] == '1' then -- metrics of one event follow each other
        if events[i] ~= last then skipped, last = skipped + 1, events[i] end
      else
        m.total, m.month = m.total + 1, m.month + 1
        fresh[#fresh + 1] = i
      end
    end
  end
  for _, m in ipairs(ordered) do
    if m.total > 0 then grow(m) end
  end
  for _, i in ipairs(fresh) do
    if not owners[i].failed then call('SETEX', markers[i], MARKER_TEXT, ARGV[1]) end
  end
end

-- By how much the estimate of `key` grows; nil when the key is of a wrong type. Redis caches an estimate in the key, so
-- only a changed one has to be computed.
local function add_users(key, users)
  local before = try('PFCOUNT', key)
  if not before then return nil end
  if call('PFADD', key, unpack(users)) == 0 then return 0 end
  return call('PFCOUNT', key) - before
end

local function estimate()
  read_events(function(m, user)
    m.users = m.users or {}
    m.users[#m.users + 1] = user
  end)
  for _, m in ipairs(ordered) do
    local key = P .. 'hll:' .. string.sub(m.key, #P + 1)
    local total, of_month = add_users(key, m.users), add_users(key .. monthly, m.users)
    if of_month then call('EXPIREAT', key .. monthly, until_month, 'NX') end
    m.total, m.month = total or 0, of_month or 0
    if m.total ~= 0 or m.month ~= 0 then grow(m) end
  end
end

if ARGV[9] == '1' then estimate() else count_by_markers() end
for board, entries in pairs(boards) do
  local scope = monthly_boards[board]
  try('ZADD', scope and P .. 'i:unique:' .. board .. ':all' or board, unpack(entries))
  if scope then
    local key = P .. 'i:unique:' .. board .. ':' .. month
    if try('ZADD', key, unpack(scope)) then call('EXPIREAT', key, until_month, 'NX') end
  end
end
return { new, failed, skipped }
