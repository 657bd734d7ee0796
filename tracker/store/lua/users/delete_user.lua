#!lua flags=allow-oom
-- delete_user.lua: deletes a user, so many torrents in a call, until it answers 0. After the first call nobody announces with
-- the passkey any more, and what is left to do stands in `deleting`, for whoever goes on.
-- KEYS[1]   the prefix
-- ARGV[1]   user id   ARGV[2] passkey, '' to go on with what was begun   ARGV[3] most torrents of each of the user's sets
-- Answer    1 while there is more to delete
local P, call, uid, passkey = KEYS[1], redis.call, ARGV[1], ARGV[2]
local user, deleting = P .. 'u:' .. uid, P .. 'deleting'
local listed = call('ZRANGE', P .. 'users', uid, uid, 'BYSCORE')
if passkey ~= '' and (#listed > 0 or call('HGET', P .. 'user:' .. passkey, 'user_id') == uid) then
  call('SADD', deleting, uid)
  call('UNLINK', P .. 'user:' .. passkey)
  for _, other in ipairs(listed) do call('UNLINK', P .. 'user:' .. other) end
  call('ZREMRANGEBYSCORE', P .. 'users', uid, uid)
elseif call('SISMEMBER', deleting, uid) == 0 then
  return 0
end

local more = 0
for _, set in ipairs({ ':active', ':complete', ':incomplete', ':hnr' }) do
  local tids = redis.pcall('SPOP', user .. set, ARGV[3])
  if tids.err then tids = {} end -- somebody else's, which goes as a whole
  for _, tid in ipairs(tids) do call('UNLINK', user .. ':t:' .. tid) end
  if #tids == tonumber(ARGV[3]) then more = 1 end
end
redis.pcall('ZREM', P .. 'i:hnr', uid)
if more == 0 then
  call('UNLINK', user, user .. ':active', user .. ':complete', user .. ':incomplete', user .. ':hnr')
  call('SREM', deleting, uid)
end
return more
