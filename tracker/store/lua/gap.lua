-- gap.lua: the last outage, while nobody could announce. A fragment, after `now`, and `gap` and `heartbeat`, the values of
-- those keys; sets `gap_from` and `gap_until` (epoch s, 0 for none) and `fresh`, true when that outage has only just been
-- noticed. heartbeat.lua writes it down, but whoever comes before it after an outage has to know as well. Times that lie
-- ahead were written by a clock that was wrong.
local OUTAGE, AHEAD = 60, 5
local gap_from, gap_until, fresh = 0, 0, false
if gap then
  local from, till = string.match(gap, '^(%d+) (%d+)$')
  if till and tonumber(till) <= now + AHEAD then gap_from, gap_until = tonumber(from), tonumber(till) end
end
heartbeat = tonumber(heartbeat or '')
if heartbeat and now - heartbeat > OUTAGE then gap_from, gap_until, fresh = heartbeat, now, true end

-- How much of [from, now) the tracker was away: nobody could announce then.
local function away(from)
  if from >= gap_until then return 0 end
  return math.max(0, math.min(now, gap_until) - math.max(from, gap_from))
end
