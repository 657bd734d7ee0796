-- user_copies.lua: with several shards, the main prefix lists changed passkeys and deleted users under a number that
-- grows. So each shard can be given what it misses.

local is_main = string.find(P, ':{main}:$')

-- `member` is a passkey, or 'deleted:<user id>'.
local function note_copy(member)
  if not is_main then return end
  call('ZADD', P .. 'copies', call('INCR', P .. 'copies:version'), member)
  call('HDEL', P .. 'copies:rows', member)
end
