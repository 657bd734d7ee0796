#!lua flags=allow-oom
-- cleanup.lua: finds stale keys and stale entries of sets, and deletes them if asked. Each is checked and deleted in
-- one step, so this is safe beside a running tracker.
-- ARGV[1]   the type that the keys must have   ARGV[2] '1': delete
-- ARGV[3]   Lua pattern for a key, or for 'key entry'; what does not match is not stale
-- ARGV[4]   what is stale without: a key, with %1 for the first capture of the pattern; or a name in `rules`
-- ARGV[5]   cursor in the entries of the first key ('0' at the start)   ARGV[6] budget: keys and entries, approximately
-- ARGV[7..] keys, without the prefix
-- Answer    { keys done, cursor in the next key, stale keys and entries ('key entry'), keys of another type }
local P, call = KEYS[1], redis.call
local expected, delete, pattern, needs = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local stale, wrong, checked = {}, {}, 0
local rules = {} -- each gets the captures, and tells whether the key or the entry is still in use

local function exists(name)
  return call('EXISTS', P .. name) == 1
end

-- The sweep visits ranked torrents. A site may write fields before it registers a torrent, or disable an unknown one.
function rules.torrent(ih)
  local v = call('HMGET', P .. 't:' .. ih, 'tid', 'enabled', 'name', 'private', 'reason', 'multi_up', 'multi_dn',
    'size', 'labels')
  return exists('info_hash:' .. ih) or exists('tpeers:' .. ih) or v[2] == '0' or v[2] == 'pending'
    or not v[1] and (v[3] or v[4] or v[5] or v[6] or v[7] or v[8] or v[9])
    or v[1] and call('GET', P .. 'torrent_id:' .. v[1]) == ih and call('ZSCORE', P .. 'i:seeders', v[1])
end

function rules.torrent_id(tid)
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  return call('HGET', P .. 't:' .. ih, 'tid') == tid or call('GET', P .. 'info_hash:' .. ih) == tid
end

-- While a peer has a timeout, due lists and the sweep end or repair its membership.
function rules.peer(tid, pidx)
  local ih, id = call('GET', P .. 'torrent_id:' .. tid), tid .. ':' .. pidx
  return ih and (call('HGET', P .. 'p:' .. id, 'active') ~= '1' or exists('ptimeout:' .. id)
    or call('SISMEMBER', P .. 'tpeers:' .. ih, pidx) == 1)
end

function rules.name(folded, ih)
  return call('HGET', P .. 't:' .. ih, 'listed') == folded
end

-- A project is listed as long as it exists, also while it is being deleted.
function rules.project(name)
  return call('SISMEMBER', P .. 'w', name) == 1
end

local function in_use(subject)
  if not string.find(subject, pattern) then return true end
  if rules[needs] then return rules[needs](string.match(subject, pattern)) end
  return exists((string.gsub(subject, pattern, needs)))
end

local function report(found, command, name, ...)
  found[#found + 1] = table.concat({ name, ... }, ' ')
  if delete then call(command, P .. name, ...) end
end

-- Returns the cursor to go on at.
local function check(name, from)
  local kind = call('TYPE', P .. name).ok
  if kind == expected and string.find(pattern, ' ') then
    local scan, remove, step = 'SSCAN', 'SREM', 1
    if kind == 'zset' then scan, remove, step = 'ZSCAN', 'ZREM', 2 end
    local page = call(scan, P .. name, from, 'COUNT', ARGV[6])
    for i = 1, #page[2], step do
      if not in_use(name .. ' ' .. page[2][i]) then report(stale, remove, name, page[2][i]) end
    end
    checked = checked + #page[2] / step
    return page[1]
  elseif kind ~= expected and kind ~= 'none' then
    report(wrong, 'UNLINK', name)
  elseif kind ~= 'none' and not in_use(name) then
    report(stale, 'UNLINK', name)
  end
  return '0'
end

local done, cursor = 0, ARGV[5]
while ARGV[7 + done] and checked < tonumber(ARGV[6]) do
  local ok, go_on = pcall(check, ARGV[7 + done], cursor)
  checked = checked + 1
  cursor = ok and go_on or '0' -- a check fails when another key is of a wrong type, which the next pass deletes first
  if cursor ~= '0' then break end
  done = done + 1
end
return { done, cursor, stale, wrong }
