-- traffic.lua: writes what an announce reports of its peer, and sums the traffic of the batch. After max_exact.lua,
-- `call`, `now` and `max_credit`.
--
-- `stored` is what HMGET read of the peer: endpoints, left, uploaded, downloaded, last_announce, total_time, speed_up,
-- paused. Values are compared as text, which is exact and needs no conversion: both are decimals without leading zeros.
local traffic, udp_traffic -- upload and download by family, of announces over HTTP and over UDP

-- `up` or `down` is above 0. Comparisons instead of calls of min(), which are several times slower.
local function add_traffic(up, down, elapsed, on_v4, over_udp)
  local sums, at, max_bytes = traffic, on_v4 and 1 or 3, elapsed > 1 and max_credit * elapsed or max_credit
  if over_udp then
    sums = udp_traffic or { 0, 0, 0, 0 }
    udp_traffic = sums
  elseif not sums then
    sums = { 0, 0, 0, 0 }
    traffic = sums
  end
  up = sums[at] + (up < max_bytes and up or max_bytes)
  down = sums[at + 1] + (down < max_bytes and down or max_bytes)
  sums[at], sums[at + 1] = up < MAX_EXACT and up or MAX_EXACT, down < MAX_EXACT and down or MAX_EXACT
end

local function speed(bytes, elapsed)
  if bytes == 0 or elapsed <= 0 then return '0' end
  return string.format('%.2f', bytes / elapsed)
end

-- Writes only what differs. Most peers transfer nothing between two announces; those have no speeds.
local function write_traffic(key, stored, left, uploaded, downloaded, up, down, elapsed, total_time)
  if up + down > 0 then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now,
      'total_time', total_time, 'speed_up', speed(up, elapsed), 'speed_dn', speed(down, elapsed))
  elseif stored[7] or left ~= stored[2] or uploaded ~= (stored[3] or '0') or downloaded ~= (stored[4] or '0') then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now,
      'total_time', total_time)
    if stored[7] then call('HDEL', key, 'speed_up', 'speed_dn') end
  else
    call('HSET', key, 'last_announce', now, 'total_time', total_time)
  end
end
