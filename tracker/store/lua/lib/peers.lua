-- peers.lua: the kind of a peer, the counts by kind, and a peer without a swarm. After `call` and `memory` (seconds
-- that the hash of an inactive peer of a user is kept; 0: it is deleted, as an anonymous peer's hash always is).

-- s: seeder; l: leecher, partial seeds included.
local function kind_of(left, paused)
  return left == '0' and paused ~= '1' and 's' or 'l'
end

local function count_peer(t, kind, paused, by)
  if kind == 's' then t.seeders = math.max(0, t.seeders + by) else t.leechers = math.max(0, t.leechers + by) end
  if paused then t.paused = t.paused + by end
end

local function is_remembered(uid)
  return memory > 0 and (uid or '') ~= ''
end

local function deactivate_peer(key)
  call('HSET', key, 'active', '0')
  call('HDEL', key, 'n4', 'n6', 'endpoints')
  call('EXPIRE', key, memory)
end
