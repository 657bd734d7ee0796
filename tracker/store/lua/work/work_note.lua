#!lua
-- work_note.lua: adds points of now to the histories of torrents that are not ranked. Scorings add points to those that
-- are, but a weak torrent leaves the ranking after a day and then gets none.
-- ARGV[1]   now (epoch s)   ARGV[2..] torrent ids
-- Answer    nothing
local P, call = KEYS[1], redis.call
local now = tonumber(ARGV[1])
local MAX_POINTS, KEPT, MAX_PEERS = 72, 604800, 10 ^ 9
--@ include lib/numbers.lua

local function count_of(text)
  return math.min(MAX_PEERS, math.max(0, whole(text)))
end

-- A key of a wrong type must not keep other torrents from being noted.
local function note(tid)
  local ih = redis.pcall('GET', P .. 'torrent_id:' .. tid)
  if type(ih) ~= 'string' or call('ZSCORE', P .. 'i:score', tid) then return end
  local v, key = redis.pcall('HMGET', P .. 't:' .. ih, 'seeders', 'leechers', 'snatches'), P .. 'history:' .. tid
  if v.err then return end
  local point = string.format('%s %d %d %d 0', decimal(now), count_of(v[1]), count_of(v[2]), count_of(v[3]))
  if type(redis.pcall('RPUSH', key, point)) ~= 'number' then return end
  call('LTRIM', key, -MAX_POINTS, -1)
  call('EXPIRE', key, KEPT)
end

for i = 2, #ARGV do note(ARGV[i]) end
