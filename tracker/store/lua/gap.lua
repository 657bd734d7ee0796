-- gap.lua: the last outage, while nobody could announce. A fragment, after `now`; sets `gap_from` and `gap_until` (epoch
-- s, 0 for none) and `fresh`, true when that outage has only just been noticed. heartbeat.lua writes it down, but whoever
-- comes before it after an outage has to know as well. Times that lie ahead were written by a clock that was wrong.
local OUTAGE, AHEAD = 60, 5
local known = redis.call('MGET', P .. 'gap', P .. 'heartbeat')
local gap_from, gap_until = string.match(known[1] or '', '^(%d+) (%d+)$')
local heartbeat, fresh = tonumber(known[2] or ''), false
gap_from, gap_until = tonumber(gap_from) or 0, tonumber(gap_until) or 0
if gap_until > now + AHEAD then gap_from, gap_until = 0, 0 end
if heartbeat and now - heartbeat > OUTAGE then gap_from, gap_until, fresh = heartbeat, now, true end
