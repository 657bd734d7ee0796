-- uniques.lua: the metrics of a batch of sightings, and all that is written where they grow. A fragment for sight.lua and
-- estimate.lua, after `P`, `outbox_most` and outbox.lua.
--
-- A metric of the batch is a table: key, board (the scope of its leaderboard, or the key of its torrent's places), member
-- (its name there), torrent (false for a place of the world), total and month (by how much each is to grow).
local call, now, month, until_month, per_torrent = redis.call, tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[5] == '1'
local monthly = '.' .. month
local failed = 0

-- A key of the wrong type fails the one metric it is of, and is reported.
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' then return answer end
  failed = failed + 1
end

local metrics, order, torrents = {}, {}, {}

local function metric(key, board, member, torrent)
  local m = metrics[key]
  if m then return m end
  m = { key = key, board = board, member = member, torrent = torrent, total = 0, month = 0 }
  metrics[key] = m
  order[#order + 1] = m
  return m
end

-- Nothing is counted for a torrent that was forgotten meanwhile: nobody would ever delete it.
local function torrent_of(ih)
  local torrent = torrents[ih]
  if torrent == nil then
    local name = 'torrents.' .. ih
    torrent = call('EXISTS', P .. 't:' .. ih) == 1
      and { key = P .. 't:' .. ih, head = P .. name .. '.', places = P .. 'i:unique:' .. name }
    torrents[ih] = torrent
  end
  return torrent
end

-- Calls `see` with each metric of each sighting, and with who was seen.
local function read_sightings(see)
  local places = { countries = {}, cities = {}, postcodes = {} }
  local function see_place(torrent, scope, name, user)
    local place = places[scope][name]
    if not place then
      local member = scope .. '.' .. name
      place = { member, member .. '.users', metric(P .. member .. '.users', scope, name, false) }
      places[scope][name] = place
    end
    see(place[3], user)
    if torrent then see(metric(torrent.head .. place[2], torrent.places, place[1], torrent), user) end
  end
  for i = 6, #ARGV do
    local ih, user, country, city, postcode = struct.unpack('>c40Bc0Bc0Bc0Bc0', ARGV[i])
    local torrent = torrent_of(ih)
    if torrent then see(metric(torrent.head .. 'users', 'torrents', ih, torrent), user) end
    if country ~= '' then see_place(torrent, 'countries', country, user) end
    if city ~= '' then see_place(torrent, 'cities', city, user) end
    if postcode ~= '' then see_place(torrent, 'postcodes', postcode, user) end
  end
end

-- Leaderboards are written once for the whole batch, with what the figures are now.
local boards, monthly_boards = {}, {}

local function rank(all, board, figure, member)
  local entries = all[board]
  if not entries then
    entries = {}
    all[board] = entries
  end
  local n = #entries
  entries[n + 1], entries[n + 2] = figure, member
end

local function add(m)
  local key = m.key
  m.total_now = call('INCRBY', key, m.total)
  key = key .. monthly
  m.month_now = call('INCRBY', key, m.month)
  if m.month_now == m.month then call('EXPIREAT', key, until_month) end
end

-- Adds to the total and the month of a metric, to both or to none, and ranks it; false when a key is of the wrong type.
local function grow(m)
  if not pcall(add, m) then
    if m.total_now then call('INCRBY', m.key, -m.total) end
    failed = failed + 1
    return false
  end
  rank(boards, m.board, m.total_now, m.member)
  if not m.torrent or m.board == 'torrents' then rank(monthly_boards, m.board, m.month_now, m.member) end
  return true
end

-- What else a metric that grew changes: its torrent's count of new addresses, and what goes to StatHat. The answer is how
-- many addresses were new to a torrent.
local function tell(m)
  if outbox_most > 0 and m.total > 0 and (m.board == 'countries' or m.torrent and per_torrent) then
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
