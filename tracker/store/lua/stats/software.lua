#!lua
-- software.lua: adds a process's counts of client programs, once, even if the process sends them repeatedly. Clients
-- can send any name, so a member is listed once it came from several addresses, and a board that has grown too long is
-- cut to its most frequent members.
-- ARGV[1]   name of the process   ARGV[2] number of the batch
-- ARGV[3]   the month (UTC, YYYY-MM)   ARGV[4] when the boards of that month expire (epoch s)
-- ARGV[5]   members that a cut board keeps   ARGV[6] a board with more members is cut
-- ARGV[7]   how many of the pairs, the first ones, are joins; the rest are failures
-- ARGV[8]   addresses that a new member needs   ARGV[9] members whose addresses are kept until they have as many
-- ARGV[10..] for each pair, at most 100: member, count, its client, digests of addresses (8 hex digits each)
-- Answer    how many boards are of a wrong type
local P, call = KEYS[1], redis.call
local process = P .. 'counted:' .. ARGV[1]
if call('SET', process, ARGV[2], 'EX', 86400, 'GET') == ARGV[2] then return 0 end
local kept, max_members, wrong = tonumber(ARGV[5]), tonumber(ARGV[6]), 0
local min_addresses, max_unlisted = tonumber(ARGV[8]), tonumber(ARGV[9])
local failures, unlisted = 10 + 4 * tonumber(ARGV[7]), P .. 'unlisted_clients'

-- The count to add to a board; nil while neither the member nor its client is listed, and it came from too few
-- addresses so far. Its counts wait for the others. A board of a wrong type lists all: adding to it then fails.
local function listed_count(board, member, count, client, addresses)
  if redis.pcall('ZSCORE', board, member) then return count end
  local known = redis.pcall('HGET', unlisted, member)
  local waiting, digests = string.match(type(known) == 'string' and known or '', '^(%d+) (%x*)$')
  count, digests = count + (waiting or 0), digests or ''
  for at = 1, #addresses, 8 do
    local address = string.sub(addresses, at, at + 7)
    if not string.find(digests, address, 1, true) then digests = digests .. address end
  end
  if #digests >= 8 * min_addresses or redis.pcall('ZSCORE', P .. 'i:client:joins:all', client) then
    redis.pcall('HDEL', unlisted, member)
    return count
  end
  redis.pcall('HSET', unlisted, member, string.format('%.0f %s', count, digests))
end

local function add(board, listed)
  for i = 1, #listed, 2 do call('ZINCRBY', board, listed[i + 1], listed[i]) end
  local members = call('ZCARD', board)
  if members > max_members then call('ZREMRANGEBYRANK', board, 0, members - kept - 1) end
end

local function add_to_both(outcome, first, last)
  local all, monthly = P .. 'i:client:' .. outcome .. ':all', P .. 'i:client:' .. outcome .. ':' .. ARGV[3]
  local listed, n = {}, 0 -- members, each followed by its count
  for i = first, last, 4 do
    local count = listed_count(all, ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3])
    if count then n, listed[n + 1], listed[n + 2] = n + 2, ARGV[i], count end
  end
  if n == 0 then return end
  if not pcall(add, all, listed) then wrong = wrong + 1 end
  if pcall(add, monthly, listed) then
    call('EXPIREAT', monthly, ARGV[4], 'NX')
  else
    wrong = wrong + 1
  end
end

-- Random members make room, so that those of a flood mostly replace each other.
local function cut_unlisted()
  local surplus = call('HLEN', unlisted) - max_unlisted
  if surplus > 0 then call('HDEL', unlisted, unpack(call('HRANDFIELD', unlisted, surplus))) end
  call('EXPIRE', unlisted, 2592000)
end

add_to_both('joins', 10, failures - 1)
add_to_both('failures', failures, #ARGV)
pcall(cut_unlisted)
return wrong
