-- forgetting.lua: a torrent goes with all its keys, its unique users too. A fragment for sweep.lua and remove.lua, after
-- swarm.lua and naming.lua. Markers of single addresses are left: they run out by themselves, and nobody has a list of them.

local PLACES_A_CALL, MONTHS_KEPT = 25, 13
local ends

-- Months since the year 0, of `now`.
local function month_number()
  local days, year = math.floor(now / 86400), 1970
  local function length() return year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0) and 366 or 365 end
  while days >= length() do
    days, year = days - length(), year + 1
  end
  local month = 0
  for _, days_of_month in ipairs({ 31, length() - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30 }) do
    if days < days_of_month then break end
    days, month = days - days_of_month, month + 1
  end
  return year * 12 + month
end

-- What the key of a metric may end in: nothing, or a month that is kept. The next month too: a clock may be ahead.
local function endings()
  if ends then return ends end
  local made, this = { '' }, month_number()
  for number = this + 1, this - MONTHS_KEPT, -1 do
    made[#made + 1] = string.format('.%04d-%02d', math.floor(number / 12), number % 12 + 1)
  end
  ends = made
  return made
end

local function unlink_metrics(names, heads)
  local doomed = {}
  for _, name in ipairs(names) do
    for _, head in ipairs(heads) do
      for _, ending in ipairs(endings()) do doomed[#doomed + 1] = head .. name .. ending end
    end
  end
  call('UNLINK', unpack(doomed))
end

-- Deletes the unique users of a torrent, so many places at a time: false when there are more. The torrent's own figures go
-- last; while there are estimates of any place there is one of its own.
local function drop_uniques(ih)
  local metric, boards = 'torrents.' .. ih, P .. 'i:unique:'
  local places_key = boards .. metric
  local places = call('ZRANGE', places_key, 0, PLACES_A_CALL - 1)
  local heads = { P }
  if call('EXISTS', P .. 'hll:' .. metric .. '.users') == 1 then
    heads[2] = P .. 'hll:'
  elseif #places == 0 and call('EXISTS', P .. metric .. '.users') == 0 then
    return true
  end
  if #places > 0 then
    local names = {}
    for i, place in ipairs(places) do names[i] = metric .. '.' .. place .. '.users' end
    unlink_metrics(names, heads)
    call('ZREM', places_key, unpack(places))
  end
  if #places == PLACES_A_CALL then return false end
  for _, ending in ipairs(endings()) do
    call('ZREM', boards .. 'torrents:' .. (ending == '' and 'all' or string.sub(ending, 2)), ih)
  end
  unlink_metrics({ metric .. '.users' }, heads)
  return true
end

-- Deletes an empty torrent; false when it has to be called again for the rest.
local function forget(t)
  if not drop_uniques(t.ih) then return false end
  list_name(t.ih, '')
  call('UNLINK', P .. 'info_hash:' .. t.ih, t.key, P .. 'tpeers:' .. t.ih)
  if t.tid then release_id(t) end
  return true
end
