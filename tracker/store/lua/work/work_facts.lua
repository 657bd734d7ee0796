#!lua flags=allow-oom
-- work_facts.lua: reads in a shard what projects of kind seeding, which are under the main prefix, have to know of
-- torrents and of claimants there. It adds little, and also works in a full store.
-- ARGV[1]   '1': from now on, what users download of these torrents is counted
-- ARGV[2..] four each: item, claimant, where it seeds if the project verifies addresses (packed endpoint in hex digits;
--   '': unknown), '1': also find where the user seeds
-- Answer    the facts of each, packed (MessagePack), as work_claim.lua and work_verify.lua read them
local P, call = KEYS[1], redis.call
--@ include lib/work_torrents.lua

local answer = {}
for i = 2, #ARGV, 4 do
  local item, claimant = ARGV[i], ARGV[i + 1]
  local torrent = read_fields(P .. 't:' .. item, unpack(TORRENT_FIELDS))
  local tid, kind, announced = torrent[1] or '', kind_at(item, ARGV[i + 2])
  if ARGV[1] == '1' and torrent[1] and not torrent[2] then call('HSET', P .. 't:' .. item, 'user_downloaded', '0') end
  answer[#answer + 1] = cmsgpack.pack({
    registered = call('MGET', P .. 'info_hash:' .. item, P .. 'deny:' .. item), torrent = torrent,
    account = read_fields(P .. 'u:' .. claimant .. ':t:' .. tid, unpack(ACCOUNT_FIELDS)),
    kind = kind, announced = announced,
    seeder = ARGV[i + 3] == '1' and endpoint_of_seeder(item, tid, claimant) or nil,
  })
end
return answer
