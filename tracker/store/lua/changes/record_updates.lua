#!lua
-- record_updates.lua: records `updated` in the change feed for some of the peers that announced since the last call,
-- with their values now. A peer that left meanwhile has a change of its own.
-- ARGV[1]   changes that the change feed keeps, about   ARGV[2] max peers
-- Answer    how many were noted
local P, call, max_changes = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/changes.lua
local torrents = {} -- by id, false for one that is gone

-- `uid`: of a user who announced the v2 half of a hybrid torrent and may have no peer here, on the v1 half.
local function record(tid, pidx, uid)
  local v = call('HMGET', P .. 'p:' .. tid .. ':' .. pidx, 'active', 'user_id', 'left')
  if torrents[tid] == nil then
    local ih = call('GET', P .. 'torrent_id:' .. tid)
    local counts = ih and call('HMGET', P .. 't:' .. ih, 'seeders', 'leechers')
    torrents[tid] = ih and { tid = tid, ih = ih, seeders = counts[1] or '0', leechers = counts[2] or '0' }
  end
  local t, active = torrents[tid], v[1] == '1'
  if not t or not active and uid == '' then return end
  if active then return feed.record_peer('updated', t, pidx, v[2] or uid, v[3]) end
  feed.record('updated', t, uid, '', feed.totals(uid, tid), {})
end

local noted = call('SPOP', P .. 'updated', ARGV[2])
for _, member in ipairs(noted) do
  pcall(record, string.match(member, '^(%d+):(%x+):?(%d*)$')) -- a key of a wrong type: leave this peer out
end
return #noted
