#!lua flags=allow-oom
-- rewind.lua: the store's clock was set back, so that timeouts of before would last longer by as much: shortens them, for a slice
-- of a swarm's members.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)   ARGV[2] by how much (s)   ARGV[3] whose last announce was before this (epoch s) has a timeout of before
-- ARGV[4]   longest timeout that an announce may have (s)   ARGV[5] torrent id   ARGV[6] where to go on ('0' from the start)
-- ARGV[7]   members, about
-- Answer    { where to go on, '0' for nowhere; timeouts shortened }
local P, now, back, before, longest = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local SLACK = 5 -- seconds: how exactly both clocks are known
local call = redis.call
local ih = call('GET', P .. 'torrent_id:' .. ARGV[5])
if not ih then return { '0', 0 } end

-- Of those who announced about then nobody knows on which side of it: they show it by a timeout that no announce makes now.
local function is_of_before(left, last)
  if left <= back - SLACK then return false end
  return last < before or last > now + SLACK or left <= back + longest + SLACK
end

local page, shortened = call('SSCAN', P .. 'tpeers:' .. ih, ARGV[6], 'COUNT', ARGV[7]), 0
for _, pidx in ipairs(page[2]) do
  local suffix = ARGV[5] .. ':' .. pidx
  local left = call('PTTL', P .. 'ptimeout:' .. suffix) / 1000
  local last = tonumber(left > 0 and call('HGET', P .. 'p:' .. suffix, 'last_announce') or '')
  if last and is_of_before(left, last) then
    call('PEXPIRE', P .. 'ptimeout:' .. suffix, string.format('%.0f', math.max(1, (left - back) * 1000)))
    shortened = shortened + 1
  end
end
return { page[1], shortened }
