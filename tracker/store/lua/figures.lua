-- figures.lua: what an announce says of its peer, and what that adds up to. A fragment for announce.lua, after `call`, `now`,
-- `most_credit` and gap.lua.
--
-- `was` is what HMGET read of the peer: endpoints, left, uploaded, downloaded, last_announce, total_time, speed_up,
-- paused. Figures are compared as text, which is exact and costs no conversion: both are decimals without leading zeros.
local MAX = 9007199254740991
local moved

local function note_moved(up, down, elapsed, on_v4)
  if up + down == 0 then return end
  moved = moved or { 0, 0, 0, 0 }
  local most, at = most_credit * max(1, elapsed), on_v4 and 1 or 3
  moved[at] = min(MAX, moved[at] + min(up, most))
  moved[at + 1] = min(MAX, moved[at + 1] + min(down, most))
end

local function speed(bytes, elapsed)
  if bytes == 0 or elapsed <= 0 then return '0' end
  return string.format('%.2f', bytes / elapsed)
end

-- Writes what differs. Most announces are of peers to which nothing happens; those have no speeds at all.
local function write_figures(key, was, left, uploaded, downloaded, up, down, elapsed, total_time)
  if up + down > 0 then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now,
      'total_time', total_time, 'speed_up', speed(up, elapsed), 'speed_dn', speed(down, elapsed))
  elseif was[7] or left ~= was[2] or uploaded ~= (was[3] or '0') or downloaded ~= (was[4] or '0') then
    call('HSET', key, 'left', left, 'uploaded', uploaded, 'downloaded', downloaded, 'last_announce', now, 'total_time', total_time)
    if was[7] then call('HDEL', key, 'speed_up', 'speed_dn') end
  else
    call('HSET', key, 'last_announce', now, 'total_time', total_time)
  end
end
