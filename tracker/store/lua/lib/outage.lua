-- outage.lua: the last interruption: an outage, when no tracker answered, or a step of the clock. Needs `now`.
--
-- `heartbeat` holds when a tracker last ran (epoch s). `gap` holds the last interruption, 'from until ahead back': what
-- the clock showed before and after it (epoch s), and of all interruptions, by how much the clock has run ahead of the
-- steady clock, and by how much it was set back (s). After a step back, `from` is later than `until`. heartbeat.lua
-- records an interruption; a script that runs before it has to notice it as well.
local OUTAGE = 60 -- seconds without a heartbeat that make an outage
local CLOCK_SLACK = 5 -- seconds: clocks of trackers differ by less; a later time was written by a wrong clock

-- Of the values of the two keys: start and end of the last interruption (epoch s, 0 for none); what the steady clock
-- shows, which never steps and stands still during outages (epoch s); and the sum of all steps back (s).
local last_outage
do
local gaps = {} -- the numbers of `gap`, by its text: most calls read the same as the one before

function last_outage(gap, heartbeat)
  local beat, from, till, ahead, back = tonumber(heartbeat or ''), 0, 0, 0, 0
  if gap then
    if not gaps[gap] then
      local f, t, a, b = string.match(gap, '^(%d+) (%d+) (%-?%d+) (%d+)$')
      gaps = { [gap] = f and { tonumber(f), tonumber(t), tonumber(a), tonumber(b) } or { 0, 0, 0, 0 } }
    end
    from, till, ahead, back = unpack(gaps[gap])
  end
  if beat and (now - beat > OUTAGE or now - beat < -CLOCK_SLACK) then
    return beat, now, beat - ahead, back + math.max(0, beat - now)
  end
  if till > now + CLOCK_SLACK then from, till = 0, 0 end
  return from, till, now - ahead, back
end
end
