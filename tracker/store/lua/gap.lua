-- gap.lua: the last outage, as heartbeat.lua found it. A fragment; sets `gap_from` and `gap_until` (epoch s, 0 for none).
local gap_from, gap_until = string.match(redis.call('GET', P .. 'gap') or '', '^(%d+) (%d+)$')
gap_from, gap_until = tonumber(gap_from) or 0, tonumber(gap_until) or 0
