#!lua flags=allow-oom
-- work_release.lua: ends claims; each item is wanted again in its queue and place. It also works in a full store.
-- ARGV[1]   project   ARGV[2] now (epoch ms)   ARGV[3] '1': an admin asks, and no claimant is blocked   ARGV[4] address
-- ARGV[5]   its network ('': none)   ARGV[6..] triples: item, claimant, token ('': not known)
-- Answer    the number of claims that ended, -1 for a claimant who is blocked; nil when there is no such project
local P, call, now_ms = KEYS[1], redis.call, tonumber(ARGV[2])
--@ include lib/work_claim_end.lua

check_types()
call('ZCARD', W .. ':released')
for i = 6, #ARGV, 3 do read_claim(ARGV[i] .. ' ' .. ARGV[i + 1]) end
local ended = 0
for i = 6, #ARGV, 3 do
  local item, claimant, token = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if ARGV[3] ~= '1' and is_blocked(claimant, ARGV[4], ARGV[5]) then return -1 end
  local name = item .. ' ' .. claimant
  local claim = (token == '' or has_lease(W .. ':out', name, token)) and read_claim(name)
  if claim then
    end_claim(item, claimant)
    give_back(item, claim)
    if ARGV[3] ~= '1' then note_released(claimant) end
    count_work('released', '1')
    ended = ended + 1
  end
end
return ended
