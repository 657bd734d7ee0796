-- user_copies.lua: with several shards, home lists the passkeys and deleted users that have changed, under a number
-- that grows. So each shard can be given what it lacks. After `P` and `call`.

local is_home = string.find(P, ':{home}:$')

-- `member` is a passkey, or 'deleted:<user id>'.
local function note_copy(member)
  if is_home then call('ZADD', P .. 'copies', call('INCR', P .. 'copies:version'), member) end
end
