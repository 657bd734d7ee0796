-- user_ids.lua: user ids: whether one is valid and free, the last one, and the adoption of users that a site wrote.

-- With several shards, the main prefix lists changed passkeys and deleted users under a number that grows. So each
-- shard can be given what it misses.
local is_main = string.find(P, ':{main}:$')

-- `member` is a passkey, or 'deleted:<user id>'.
local function note_copy(member)
  if not is_main then return end
  call('ZADD', P .. 'copies', call('INCR', P .. 'copies:version'), member)
  call('HDEL', P .. 'copies:rows', member)
end

-- Whether a text, or an id that a site wrote, can be a user id.
local function is_user_id(id)
  return #id <= 15 and string.find(id, '^[1-9]%d*$') ~= nil
end

local function is_listed(id, holder)
  return tonumber(call('ZSCORE', P .. 'users', holder) or '') == tonumber(id)
end

-- True when the id belongs to another passkey: one that is listed with it, or the one in the user's totals.
local function is_of_another(id, holder)
  if is_listed(id, holder) then return false end
  local holders = call('ZRANGE', P .. 'users', id, id, 'BYSCORE', 'LIMIT', 0, 10)
  holders[#holders + 1] = call('HGET', P .. 'u:' .. id, 'passkey') or nil
  for _, other in ipairs(holders) do
    if other ~= holder and call('HGET', P .. 'user:' .. other, 'user_id') == id then return true end
  end
  return false
end

-- Later ids are above this one. An id of 15 digits is ignored: it would leave too few.
local function raise_last_id(uid)
  if #uid < 15 and tonumber(uid) > (tonumber(call('GET', P .. 'user_id') or '') or 0) then
    call('SET', P .. 'user_id', uid)
  end
end

-- Totals alone do not take an id, as a site may have imported them before; totals with an existing passkey do. The keys
-- of a user who is being deleted must not go to the next user.
local function is_user_taken(id)
  if call('ZCOUNT', P .. 'users', id, id) > 0 or call('SISMEMBER', P .. 'deleting', id) == 1 then return true end
  local own = call('HGET', P .. 'u:' .. id, 'passkey')
  return own and call('EXISTS', P .. 'user:' .. own) == 1
end

-- Adopts a user that a site wrote (`HSET t:user:<passkey> user_id 77`): from then on the user is listed, and known by
-- id. `uid` is the id in the row of the passkey. Returns nil, or the reason for a refusal. Removes listed passkeys that
-- are deleted.
local function adopt(uid, passkey)
  if not is_user_id(uid) then return 'bad user id' end
  if call('SISMEMBER', P .. 'deleting', uid) == 1 or is_of_another(uid, passkey) then return 'user id in use' end
  call('HLEN', P .. 'u:' .. uid)
  raise_last_id(uid)
  if not is_listed(uid, passkey) then
    for _, former in ipairs(call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')) do note_copy(former) end
    call('ZREMRANGEBYSCORE', P .. 'users', uid, uid)
    call('ZADD', P .. 'users', uid, passkey)
  end
  call('HSET', P .. 'u:' .. uid, 'passkey', passkey)
end
