-- outage.lua: the last outage, when no tracker answered. After `now`.
--
-- `gap` holds the last outage ('from until', epoch s) and `heartbeat` when a tracker last ran (epoch s). heartbeat.lua
-- records an outage; a script that runs before it after an outage has to notice it as well.
local OUTAGE = 60 -- seconds without a heartbeat that make an outage
local CLOCK_SLACK = 5 -- seconds: clocks of trackers differ by less; a later time was written by a wrong clock

-- Start and end of the last outage (epoch s, 0 for none), of the values of the two keys.
local function last_outage(gap, heartbeat)
  local last_beat = tonumber(heartbeat or '')
  if last_beat and now - last_beat > OUTAGE then return last_beat, now end
  if gap then
    local from, till = string.match(gap, '^(%d+) (%d+)$')
    if till and tonumber(till) <= now + CLOCK_SLACK then return tonumber(from), tonumber(till) end
  end
  return 0, 0
end
