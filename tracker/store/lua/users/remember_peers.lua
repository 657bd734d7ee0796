#!lua
-- remember_peers.lua: what peers of users announced last to the site's former tracker. Their next announce counts from
-- there, as that of a peer that left here.
-- ARGV[1]   seconds to remember them   ARGV[2] '1': also of peers that are known here; none may announce now
-- ARGV[3..] for each peer: user id, torrent id, peer id (hex), uploaded, downloaded, left, last announce (epoch s), and
--   '1' if it is active there, else it is not new here
-- Answer    nothing
local P, call = KEYS[1], redis.call
local memory, again = tonumber(ARGV[1]), ARGV[2] == '1'
for i = 3, #ARGV, 8 do
  local uid, tid, uploaded, downloaded = ARGV[i], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4]
  local key = P .. 'p:' .. tid .. ':' .. ARGV[i + 2]
  local held = redis.pcall('HMGET', key, 'user_id', 'last_announce')
  if not held.err and held[2] then
    if again and held[1] == uid then
      call('HSET', key, 'uploaded', uploaded, 'downloaded', downloaded)
      call('HDEL', key, 'lower')
    end
  elseif not held.err and memory > 0 and ARGV[i + 7] == '1' and call('EXISTS', P .. 'torrent_id:' .. tid) == 1
    and call('HEXISTS', P .. 'u:' .. uid, 'passkey') == 1 and call('SISMEMBER', P .. 'deleting', uid) == 0 then
    call('HSET', key, 'user_id', uid, 'left', ARGV[i + 5], 'uploaded', uploaded, 'downloaded', downloaded,
      'first_announce', ARGV[i + 6], 'last_announce', ARGV[i + 6], 'active', '0')
    call('EXPIRE', key, memory)
  end
end
