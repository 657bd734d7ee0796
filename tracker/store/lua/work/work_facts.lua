#!lua flags=allow-oom
-- work_facts.lua: reads in a shard what projects of kind seeding, which are under the main prefix, have to know of
-- torrents and of claimants there. It adds little, and also works in a full store.
-- ARGV[1]   '1': from now on, what users download of these torrents is counted
-- ARGV[2..] four each: item, claimant, where it seeds if the project verifies addresses (packed endpoint in hex digits;
--   '': unknown), '1': also find where the user seeds
-- Answer    the facts of each, packed (MessagePack), as work_claim.lua and work_verify.lua read them
local P, call = KEYS[1], redis.call
--@ include lib/work_torrents.lua

local function facts_of(item, claimant, endpoint, find_seeder)
  local registered = redis.pcall('MGET', P .. 'info_hash:' .. item, P .. 'deny:' .. item)
  local torrent = read_fields(P .. 't:' .. item, unpack(TORRENT_FIELDS))
  local tid = torrent[1] or ''
  local kind, announced = kind_at(item, endpoint)
  if ARGV[1] == '1' and torrent[1] and not torrent[2] then call('HSET', P .. 't:' .. item, 'user_downloaded', '0') end
  return {
    registered = registered,
    torrent = torrent,
    account = read_fields(P .. 'u:' .. claimant .. ':t:' .. tid, unpack(ACCOUNT_FIELDS)),
    kind = kind,
    announced = announced,
    seeder = find_seeder == '1' and endpoint_of_seeder(item, tid, claimant) or nil,
  }
end

local answer = {}
for i = 2, #ARGV, 4 do answer[#answer + 1] = cmsgpack.pack(facts_of(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])) end
return answer
