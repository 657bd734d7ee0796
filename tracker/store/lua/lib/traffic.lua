-- traffic.lua: writes what an announce reports of its peer, and sums the traffic of the batch. After max_exact.lua,
-- `call`, `now` and `max_credit`.
--
-- `stored` is what HMGET read of the peer: endpoints, left, uploaded, downloaded, last_announce, total_time, speed_up,
-- paused. Values are compared as text, which is exact and needs no conversion: both are decimals without leading zeros.
local traffic

local function add_traffic(up, down, elapsed, on_v4)
  if up + down == 0 then return end
  traffic = traffic or { 0, 0, 0, 0 }
  local max_bytes, at = max_credit * max(1, elapsed), on_v4 and 1 or 3
  traffic[at] = min(MAX_EXACT, traffic[at] + min(up, max_bytes))
  traffic[at + 1] = min(MAX_EXACT, traffic[at + 1] + min(down, max_bytes))
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
