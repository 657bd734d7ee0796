-- torrent_deletion.lua: deletes a torrent with all its keys, unique users included. Needs `now`. Markers of single
-- addresses stay: no list names them, and they expire.
--@ include lib/calendar.lua
--@ include lib/registration.lua
--@ include lib/names.lua

local PLACES_PER_CALL, MONTHS_KEPT = 25, 13

-- The suffixes of a metric's keys: none, the months that are kept, and the next one, as a clock may be ahead.
local function suffixes()
  local made, year, month = { '' }, month_of(math.floor(now / 86400))
  local this = 12 * year + month - 1
  for number = this + 1, this - MONTHS_KEPT, -1 do
    made[#made + 1] = string.format('.%04d-%02d', math.floor(number / 12), number % 12 + 1)
  end
  return made
end

local function unlink_metrics(names, heads, periods)
  local keys = {}
  for _, name in ipairs(names) do
    for _, head in ipairs(heads) do
      for _, suffix in ipairs(periods) do keys[#keys + 1] = head .. name .. suffix end
    end
  end
  call('UNLINK', unpack(keys))
end

-- Deletes the unique users of a torrent, some places at a time. Returns false when there are more places. The torrent's
-- own metric is deleted last: while a place has an estimate, the torrent has one.
local function delete_unique_users(ih)
  local places_key = P .. 'i:unique:torrents.' .. ih
  local places = call('ZRANGE', places_key, 0, PLACES_PER_CALL - 1)
  local heads = { P .. 'torrents.' }
  if call('EXISTS', P .. 'hll:torrents.' .. ih .. '.users') == 1 then
    heads[2] = P .. 'hll:torrents.'
  elseif #places == 0 and call('EXISTS', P .. 'torrents.' .. ih .. '.users') == 0 then
    return true
  end
  local periods, names = suffixes(), {}
  if #places > 0 then
    for i, place in ipairs(places) do -- such as `cities.France/Paris`; its metric is `countries.France.cities.Paris`
      names[i] = ih .. '.' .. string.gsub(place, '^(%a+)%.([^/]*)/(.*)$', 'countries.%2.%1.%3') .. '.users'
    end
    unlink_metrics(names, heads, periods)
    call('ZREM', places_key, unpack(places))
  end
  if #places == PLACES_PER_CALL then return false end
  for _, suffix in ipairs(periods) do
    call('ZREM', P .. 'i:unique:torrents:' .. (suffix == '' and 'all' or string.sub(suffix, 2)), ih)
  end
  unlink_metrics({ ih .. '.users' }, heads, periods)
  return true
end

-- Deletes an empty torrent. Returns false when another call has to delete the rest.
local function delete_torrent(t)
  if not delete_unique_users(t.ih) then return false end
  list_name(t.key, P .. 'i:name', t.ih, '')
  call('UNLINK', P .. 'info_hash:' .. t.ih, t.key, P .. 'tpeers:' .. t.ih, P .. 'addresses:' .. t.ih,
    P .. 'dht:peers:' .. t.ih, P .. 'dht:peers:' .. t.ih .. ':6')
  if t.tid then release_torrent_id(t) end
  return true
end
