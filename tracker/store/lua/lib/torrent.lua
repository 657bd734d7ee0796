-- torrent.lua: reads the counts of a torrent. After `P` (the prefix) and `call`.
--
-- Scripts change the counts of a loaded torrent `t` in memory. save_torrent() writes them once; save_rankings() then
-- writes what follows from the counts of all torrents. A script is atomic, so no other client sees a state in between.

-- A stored count; false when it is not a number, because another program wrote it. It counts as 0 until the sweep
-- recounts the swarm.
local function parse_count(digits)
  local number = tonumber(digits or '')
  return number and number >= 0 and number < 1e15 and number % 1 == 0 and number or false
end

-- The torrent, then the values of more fields. The counts as stored stand at 1 to 8 of the table, in the order
-- of save_torrent(); `t.paused` is the change of the paused count. A table is built with all fields at once:
-- growing it field by field is slower.
local function load_torrent(ih, ...)
  local key = P .. 't:' .. ih
  local v = call('HMGET', key, 'tid', 'seeders', 'leechers', 's4', 'l4', 's6', 'l6', 'crowded', 'announces', ...)
  local seeders, leechers = parse_count(v[2]), parse_count(v[3])
  local s4, l4, s6, l6 = v[4] and tonumber(v[4]) or 0, v[5] and tonumber(v[5]) or 0, v[6] and tonumber(v[6]) or 0,
    v[7] and tonumber(v[7]) or 0
  local crowded, announces = v[8] and parse_count(v[8]), not v[9] and 0 or parse_count(v[9])
  return {
    seeders, leechers, s4, l4, s6, l6, crowded, announces,
    ih = ih, key = key, arrays = P .. 'swarm:' .. ih .. ':', tid = v[1], paused = 0,
    seeders = seeders or 0, leechers = leechers or 0, s4 = s4, l4 = l4, s6 = s6, l6 = l6,
    crowded = crowded, announces = announces,
  }, unpack(v, 10)
end
