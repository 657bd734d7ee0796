-- user_ids.lua: a user id that is free, and the last one that was given out.

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

-- A site may list ids above the last one given out.
local function raise_to_listed()
  local highest = call('ZRANGE', P .. 'users', '(100000000000000', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1,
    'WITHSCORES')[2]
  if highest then raise_last_id(string.format('%.0f', tonumber(highest))) end
end

local function new_user_id()
  raise_to_listed()
  local uid
  repeat
    uid = string.format('%.0f', call('INCR', P .. 'user_id'))
  until not is_user_taken(uid) and call('EXISTS', P .. 'u:' .. uid) == 0
  return uid
end
