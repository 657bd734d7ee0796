-- unique_users.lua: the metrics of a batch of events, and all keys that change with them.
--
-- A metric of the batch is a table: key, board (the scope of its leaderboard, or the key of its torrent's places),
-- member (its name there), torrent (false for a place of the world), total and month (by how much each grows).
--@ include lib/outbox.lua
local now, month, until_month = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local per_torrent, per_place = ARGV[5] == '1', ARGV[6] == '1'
local monthly = '.' .. month
local failed = 0
-- With several shards, each counts the users of its torrents. Places of the world are counted under the main prefix.
local counts_world = not string.find(P, ':{%d+%l+}:$')

-- A key of a wrong type fails only its own metric, and is counted.
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' then return answer end
  failed = failed + 1
end

local metrics, ordered, torrents_seen = {}, {}, {}

local function find_metric(key, board, member, torrent)
  local m = metrics[key]
  if m then return m end
  m = { key = key, board = board, member = member, torrent = torrent, total = 0, month = 0 }
  metrics[key] = m
  ordered[#ordered + 1] = m
  return m
end

-- A deleted torrent is not counted: nothing would ever delete its metrics.
local function existing_torrent(ih)
  local torrent = torrents_seen[ih]
  if torrent == nil then
    torrent = call('EXISTS', P .. 't:' .. ih) == 1
      and { key = P .. 't:' .. ih, head = P .. 'torrents.' .. ih .. '.', places = P .. 'i:unique:torrents.' .. ih }
    torrents_seen[ih] = torrent
  end
  return torrent
end

-- Calls `note(metric, user, number of the event)` for each metric of each event.
local function read_events(note)
  local scopes, places, packed = {}, { countries = {} }, '>c40Bc0Bc0'
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
  for i = 9, #ARGV do
    local event = { struct.unpack(packed, ARGV[i]) }
    local ih, user, country = event[1], event[2], event[3]
    local torrent = existing_torrent(ih)
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
  local entries = all[board]
  if not entries then
    entries = {}
    all[board] = entries
  end
  local n = #entries
  entries[n + 1], entries[n + 2] = total, member
end

local function increment(m)
  local key = m.key
  m.total_now = call('INCRBY', key, m.total)
  key = key .. monthly
  m.month_now = call('INCRBY', key, m.month)
  if m.month_now == m.month then call('EXPIREAT', key, until_month) end
end

-- Adds to the total and the month of a metric, to both or to neither, and ranks it. Returns false when a key is of a
-- wrong type.
local function grow_metric(m)
  if not pcall(increment, m) then
    if m.total_now then call('INCRBY', m.key, -m.total) end
    failed = failed + 1
    return false
  end
  add_to_board(boards, m.board, m.total_now, m.member)
  if not m.torrent or m.board == 'torrents' then add_to_board(monthly_boards, m.board, m.month_now, m.member) end
  return true
end

-- Updates what depends on a metric that grew: the outbox, and the torrent's count of new addresses. Returns the number
-- of addresses that were new to a torrent.
local function note_growth(m)
  local exported = m.torrent and per_torrent or not m.torrent and (per_place or m.board == 'countries')
  if max_waiting > 0 and m.total > 0 and exported then
    if not pcall(export, now - now % 60, string.sub(m.key, #P + 1), m.total) then failed = failed + 1 end
  end
  if m.board ~= 'torrents' or m.month <= 0 then return 0 end
  try('HINCRBY', m.torrent.key, 'new', m.month)
  return m.month
end

local function save_boards()
  for board, entries in pairs(boards) do
    local scope = monthly_boards[board]
    try('ZADD', scope and P .. 'i:unique:' .. board .. ':all' or board, unpack(entries))
    if scope then
      local key = P .. 'i:unique:' .. board .. ':' .. month
      if try('ZADD', key, unpack(scope)) then call('EXPIREAT', key, until_month, 'NX') end
    end
  end
end
