-- hit_and_runs.lua: the index of users who have hit-and-runs, and whether an account is one.

-- Whether this is the prefix of a shard. announce.lua gets the prefix with each call, and sets it then.
local sharded = P and string.find(P, ':{%d+%l+}:$') -- luacheck: ignore 321

-- In a shard, the users whose sums under the main prefix have to be written again.
local function note_changed(uid)
  redis.pcall('SADD', P .. 'changed', uid)
end

-- Writes how many hit-and-runs the user has. The index follows from the users' sets and can be rebuilt at any time, so
-- an index of a wrong type does not fail an announce.
local function rank_hit_and_runs(uid)
  if sharded then note_changed(uid) end
  local torrents_owed = call('SCARD', P .. 'u:' .. uid .. ':hnr')
  if torrents_owed > 0 then
    redis.pcall('ZADD', P .. 'i:hnr', torrents_owed, uid)
  else
    redis.pcall('ZREM', P .. 'i:hnr', uid)
  end
end

-- luacheck: push ignore 113 211 (some scripts only rank)
--@ include lib/groups.lua
-- Whether a user's account on a torrent is a hit-and-run: needs the rules of hit_and_run_rules.lua.
--
-- `i:hnr_pending` holds, as `<uid>:<tid>`, torrents that users have left and that become hit-and-runs when the grace
-- period ends, by that time. Keys of a wrong type are left as they are: an announce must not fail by them.

-- True when the user has given back enough: by the time on the torrent, or by the ratio there.
local function is_settled(a)
  local time = hnr_by_seed == 1 and a.seed_time or a.total_time
  return time >= hnr_threshold or hnr_ratio > 0 and a.uploaded >= hnr_ratio * a.downloaded
end

-- A client announces both halves of a hybrid torrent (BEP 52) with the same totals, and the v1 half counts for users.
-- `hybrid_of` of the v2 half is the info hash of the v1 half. Whether that counts in place of torrent `ih`: it is
-- registered, is served, and is no v2 half itself. One in another shard cannot be read here: what sets the field checks
-- that, and what removes a half deletes the field.
local function counts_elsewhere(ih, v1)
  if not v1 or v1 == ih or #v1 ~= 40 or string.find(v1, '[^0-9a-f]') then return false end
  local keys = call('MGET', P .. 'info_hash:' .. v1, P .. 'deny:' .. v1)
  if not keys[1] and string.find(P, ':{%d+%l+}:$') then return true end
  if not keys[1] or keys[2] then return false end
  local v = redis.pcall('HMGET', P .. 't:' .. v1, 'enabled', 'hybrid_of')
  return not v.err and v[1] ~= '0' and v[1] ~= 'pending' and (v[2] or '') == ''
end

local is_hit_and_run
do
-- True when the torrent makes no hit-and-run: its v1 half counts, or `bytes` are too small a part of it. A torrent of
-- unknown size has no such part. `counts`: it is known to be no v2 half.
local function makes_none(tid, bytes, counts)
  if counts and hnr_share == 0 then return false end
  local ih = redis.pcall('GET', P .. 'torrent_id:' .. tid)
  local v = type(ih) == 'string' and redis.pcall('HMGET', P .. 't:' .. ih, 'size', 'hybrid_of')
  if not v or v.err then return false end
  local size = hnr_share > 0 and tonumber(v[1] or '')
  return size and bytes <= hnr_share * size or counts_elsewhere(ih, v[2])
end

local function is_exempt(a)
  local passkey = a.passkey or redis.pcall('HGET', P .. 'u:' .. a.uid, 'passkey')
  if type(passkey) ~= 'string' then return false end
  local v = redis.pcall('HMGET', P .. 'user:' .. passkey, 'hnr_exempt', 'group')
  local group = v[1] ~= '1' and find_group(v[2])
  return v[1] == '1' or group and group.hnr_exempt == '1'
end

-- Forgiven downloads do not count. `a.passkey` is known of a user who has announced the torrent, where it counts.
function is_hit_and_run(a)
  if a.downloaded <= hnr_min or is_settled(a) then return false end
  local v = call('HMGET', P .. 'u:' .. a.uid .. ':t:' .. a.tid, 'forgiven', 'immune')
  local bytes = a.downloaded - (tonumber(v[1] or '') or 0)
  return v[2] ~= '1' and bytes > hnr_min and not makes_none(a.tid, bytes, a.passkey) and not is_exempt(a)
end
end
-- luacheck: pop
