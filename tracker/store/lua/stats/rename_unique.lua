#!lua
-- rename_unique.lua: renames metrics of unique users: counts are added, HyperLogLogs are merged, of two markers the
-- later one stays, and the leaderboards follow. Each key is renamed wholly or not at all, so that an interrupted rename
-- can go on.
-- KEYS[1]   the prefix
-- ARGV[1..] five for each key: 'figure', 'hll', 'marker', 'entry' or 'torrent', its name and its new name without the
--           prefix, the name of its leaderboard ('' for none), and the old and the new name of its entry there with a
--           space between. For an entry without a count the key is its leaderboard, and the names are those of the
--           entry. A torrent keeps its name, and gets the columns that an earlier version wrote later
-- Answer    how many were left because they are of a wrong type, or not a count
local P, call = KEYS[1], redis.call
local left = 0

local function is(key, kind)
  local found = call('TYPE', key).ok
  return found == kind or found == 'none'
end

local function count_of(key)
  local found = call('GET', key)
  if not found then return 0 end
  return #found <= 15 and string.find(found, '^%d+$') and tonumber(found) or nil
end

local function expire_as(key, ends)
  if ends > 0 and call('EXPIRETIME', key) < 0 then call('EXPIREAT', key, ends) end
end

local rename = {}

function rename.figure(old, new, board, entries)
  if not (is(old, 'string') and is(new, 'string') and is(board, 'zset')) then return false end
  local count, sum = count_of(old), count_of(new)
  if not (count and sum) then return false end
  local ends = call('EXPIRETIME', old)
  call('DEL', old)
  call('INCRBY', new, string.format('%.0f', count))
  expire_as(new, ends)
  if board ~= P then
    local before, after = string.match(entries, '^(%S+) (%S+)$')
    call('ZADD', board, string.format('%.0f', count + sum), after)
    call('ZREM', board, before)
    expire_as(board, ends)
  end
  return true
end

function rename.hll(old, new)
  local ends = call('EXPIRETIME', old)
  if type(redis.pcall('PFCOUNT', old)) == 'table' or type(redis.pcall('PFCOUNT', new)) == 'table' then return false end
  call('PFMERGE', new, old)
  call('DEL', old)
  expire_as(new, ends)
  return true
end

function rename.marker(old, new)
  if not (is(old, 'string') and is(new, 'string')) then return false end
  local there, time = call('GET', new), call('GET', old)
  if there and (tonumber(there) or 0) >= (tonumber(time or '') or 0) then
    call('DEL', old)
  elseif time then
    call('RENAME', old, new)
  end
  return true
end

function rename.entry(board, _, _, entries)
  if not is(board, 'zset') then return false end
  local before, after = string.match(entries, '^(%S+) (%S+)$')
  local score = call('ZSCORE', board, before)
  if not score then return true end
  call('ZINCRBY', board, score, after)
  call('ZREM', board, before)
  return true
end

-- A registered torrent has all four columns.
function rename.torrent(key)
  if not is(key, 'hash') then return false end
  if call('HEXISTS', key, 'tid') == 1 then
    for column in string.gmatch('announces leechers seeders snatches', '%S+') do call('HSETNX', key, column, '0') end
  end
  return true
end

for i = 1, #ARGV, 5 do
  local kind, old = ARGV[i], P .. ARGV[i + 1]
  if call('EXISTS', old) == 1 and not rename[kind](old, P .. ARGV[i + 2], P .. ARGV[i + 3], ARGV[i + 4]) then
    left = left + 1
  end
end
return left
