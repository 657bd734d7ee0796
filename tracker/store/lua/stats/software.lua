#!lua
-- software.lua: adds a process's counts of client programs, once, even if the process sends them repeatedly. Clients
-- can send any name, so a board that has grown too long is cut to its most frequent members.
-- KEYS[1]   the prefix
-- ARGV[1]   name of the process   ARGV[2] number of the batch
-- ARGV[3]   the month (UTC, YYYY-MM)   ARGV[4] when the boards of that month expire (epoch s)
-- ARGV[5]   members that a cut board keeps   ARGV[6] a board with more members is cut
-- ARGV[7]   how many of the pairs, the first ones, are joins; the rest are failures
-- ARGV[8..] pairs, at most 100: member, count
-- Answer    how many boards are of a wrong type
local P, call = KEYS[1], redis.call
local process = P .. 'counted:' .. ARGV[1]
if call('GET', process) == ARGV[2] then return 0 end
call('SET', process, ARGV[2], 'EX', 86400)
local kept, max_members, wrong = tonumber(ARGV[5]), tonumber(ARGV[6]), 0
local failures = 8 + 2 * tonumber(ARGV[7])

local function add(board, first, last)
  for i = first, last, 2 do call('ZINCRBY', board, ARGV[i + 1], ARGV[i]) end
  local members = call('ZCARD', board)
  if members > max_members then call('ZREMRANGEBYRANK', board, 0, members - kept - 1) end
end

local function add_to_both(outcome, first, last)
  if first > last then return end
  local monthly = P .. 'i:client:' .. outcome .. ':' .. ARGV[3]
  if not pcall(add, P .. 'i:client:' .. outcome .. ':all', first, last) then wrong = wrong + 1 end
  if pcall(add, monthly, first, last) then
    call('EXPIREAT', monthly, ARGV[4], 'NX')
  else
    wrong = wrong + 1
  end
end

add_to_both('joins', 8, failures - 1)
add_to_both('failures', failures, #ARGV)
return wrong
