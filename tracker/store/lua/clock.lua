-- clock.lua: has the store's clock, on which timeouts run, jumped ahead since the tracker last looked? Then timeouts have ended
-- whose peers are here, and that counts as an outage which ends now. A fragment, after gap.lua and `expected`: what that clock should
-- say (epoch s; '' where nobody knows).
expected = tonumber(expected)
if expected and tonumber(redis.call('TIME')[1]) - expected > OUTAGE then gap_from, gap_until, fresh = now, now, true end
