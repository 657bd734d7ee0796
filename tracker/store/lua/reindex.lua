#!lua
-- reindex.lua: brings torrents into the rankings that are in none: a site registered them, and nobody has joined them yet.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2..] info hashes (40 hex digits)
-- Answer    { info hashes that came into the rankings, those not listed as note_unlisted in naming.lua finds them, how many could
--             not be looked at }
local P, now, memory = KEYS[1], tonumber(ARGV[1]), 0
--@ include swarm.lua
--@ include registering.lua
--@ include naming.lua

local bound, unlisted, failed = {}, {}, 0
local checked = false

-- What is of the wrong type has to fail here, before the first write.
local function check_rankings()
  if checked then return end
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do call('ZCARD', P .. 'i:' .. index) end
  checked = true
end

-- Of a swarm with peers, which go by the id they joined with.
local function rank_figures(t)
  call('ZADD', P .. 'i:seeders', t.seeders, t.tid)
  call('ZADD', P .. 'i:leechers', t.leechers, t.tid)
  call('ZADD', P .. 'i:snatches', snatches_of(t), t.tid)
  bound[#bound + 1] = t.ih
end

local function visit(ih)
  check_rankings()
  local t, registered = load(ih), call('GET', P .. 'info_hash:' .. ih)
  if registered and #registered <= 15 and string.match(registered, '^[1-9]%d*$')
      and t.seeders + t.leechers == 0 and not id_taken(t, registered)
      and (t.tid ~= registered or call('GET', P .. 'torrent_id:' .. registered) ~= ih
        or not call('ZSCORE', P .. 'i:seeders', registered)) then
    t.tid = t.tid ~= registered and t.tid or nil -- so that it is written again
    bind(t, registered)
    rank({ registered })
    bound[#bound + 1] = t.ih
  end
  if not t.tid or call('GET', P .. 'torrent_id:' .. t.tid) ~= ih then return end
  if not call('ZSCORE', P .. 'i:seeders', t.tid) then rank_figures(t) end
  note_unlisted(t, unlisted)
end

for i = 2, #ARGV do
  if not pcall(visit, ARGV[i]) then failed = failed + 1 end
end
return { bound, unlisted, failed }
