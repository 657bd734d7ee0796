-- hit_and_runs.lua: the index of users who have hit-and-runs. After `P` and `call`.

local function is_shard()
  return string.find(P, ':{%d+}:$')
end

-- In a shard, the users whose sums at home have to be written again.
local function note_changed(uid)
  redis.pcall('SADD', P .. 'changed', uid)
end

-- Writes how many hit-and-runs the user has. The index follows from the users' sets and can be rebuilt at any time, so
-- an index of a wrong type does not fail an announce.
local function rank_hit_and_runs(uid)
  if is_shard() then note_changed(uid) end
  local torrents_owed = call('SCARD', P .. 'u:' .. uid .. ':hnr')
  if torrents_owed > 0 then
    redis.pcall('ZADD', P .. 'i:hnr', torrents_owed, uid)
  else
    redis.pcall('ZREM', P .. 'i:hnr', uid)
  end
end
