#!lua flags=allow-oom
-- shorten_timeouts.lua: after the store's clock was set back, shortens the timeouts from before, which would last
-- longer by as much. Processes a slice of a swarm's members.
-- ARGV[1]   now (epoch s)   ARGV[2] how far the clock was set back (s)
-- ARGV[3]   timeouts set by announces before this (epoch s) are too long   ARGV[4] max timeout of an announce (s)
-- ARGV[5]   torrent id   ARGV[6] cursor ('0' at the start)   ARGV[7] members, approximately
-- Answer    { cursor, '0' at the end; timeouts shortened }
local P, call = KEYS[1], redis.call
local now, back, before, max_timeout = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local PRECISION = 5 -- seconds: how exactly both clocks are known
local ih = call('GET', P .. 'torrent_id:' .. ARGV[5])
if not ih then return { '0', 0 } end

-- Peers that announced around the jump are recognised by a timeout longer than any announce can set.
local function is_too_long(left, last)
  if left <= back - PRECISION then return false end
  return last < before or last > now + PRECISION or left <= back + max_timeout + PRECISION
end

local page, shortened = call('SSCAN', P .. 'tpeers:' .. ih, ARGV[6], 'COUNT', ARGV[7]), 0
for _, pidx in ipairs(page[2]) do
  local suffix = ARGV[5] .. ':' .. pidx
  local left = call('PTTL', P .. 'ptimeout:' .. suffix) / 1000
  local last = tonumber(left > 0 and call('HGET', P .. 'p:' .. suffix, 'last_announce') or '')
  if last and is_too_long(left, last) then
    call('PEXPIRE', P .. 'ptimeout:' .. suffix, string.format('%.0f', math.max(1, (left - back) * 1000)))
    shortened = shortened + 1
  end
end
return { page[1], shortened }
