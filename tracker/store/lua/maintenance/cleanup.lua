#!lua flags=allow-oom
-- cleanup.lua: finds stale keys and stale entries of sets, and deletes them if asked. Each is checked and deleted in
-- one step, so this is safe beside a running tracker.
-- KEYS[1]   the prefix
-- ARGV[1]   rule: how a key or an entry is checked, a name in `rules`; '' checks only the type
-- ARGV[2]   rule 'exists': a key or an entry is stale without this key; * stands for what the pattern in ARGV[3] finds
-- ARGV[3]   Lua pattern for a part of the key's name or of the entry; without that part nothing is stale
-- ARGV[4]   '1': check entries, not keys   ARGV[5] '1': delete   ARGV[6] the type that the keys must have
-- ARGV[7]   cursor in the entries of the first key ('0' at the start)   ARGV[8] budget: keys and entries, approximately
-- ARGV[9..] keys, without the prefix
-- Answer    { keys done, cursor in the next key, stale keys and entries ('key entry'), keys of another type }
local P, call = KEYS[1], redis.call
local rule, needed, part, of_entries, delete = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5] == '1'
--@ include lib/hit_and_runs.lua

local stale, wrong, checked = {}, {}, 0
local rules = {} -- each tells whether a key, or an entry of it, is still in use

local function exists(name)
  return call('EXISTS', P .. name) == 1
end

function rules.exists(name, entry)
  local found = string.match(entry or name, part)
  return not found or exists((string.gsub(needed, '%*', function() return found end)))
end

-- The sweep visits ranked torrents. A site may write fields of a torrent before it registers the torrent, or to disable
-- one that is not registered.
function rules.torrent(name)
  local ih = string.sub(name, 3)
  local v = call('HMGET', P .. name, 'tid', 'enabled', 'name', 'private', 'reason', 'multi_up', 'multi_dn',
    'size', 'labels')
  local written = v[3] or v[4] or v[5] or v[6] or v[7] or v[8] or v[9]
  return exists('info_hash:' .. ih) or exists('tpeers:' .. ih) or v[2] == '0' or written and not v[1]
    or v[1] and call('GET', P .. 'torrent_id:' .. v[1]) == ih and call('ZSCORE', P .. 'i:seeders', v[1])
end

function rules.torrent_id(name)
  local tid, ih = string.match(name, '(%d+)$'), call('GET', P .. name)
  return call('HGET', P .. 't:' .. ih, 'tid') == tid or call('GET', P .. 'info_hash:' .. ih) == tid
end

-- An entry of the name index is `<folded name>TAB<info hash>`.
function rules.name(_, entry)
  return call('HGET', P .. 't:' .. string.sub(entry, -40), 'listed') == string.sub(entry, 1, -42)
end

-- An entry of `p:<pid>:torrents` is a torrent id.
function rules.swarm_of_peer(name, entry)
  return call('HGET', P .. 'p:' .. entry .. ':' .. string.sub(name, 3, 42), 'active') == '1'
end

local function check_key(name)
  checked = checked + 1
  if rules[rule](name) then return end
  stale[#stale + 1] = name
  if delete then call('UNLINK', P .. name) end
end

local function check_entries(name, kind, from)
  local scan, remove, step = 'SSCAN', 'SREM', 1
  if kind == 'zset' then scan, remove, step = 'ZSCAN', 'ZREM', 2 end
  local page, before = call(scan, P .. name, from, 'COUNT', ARGV[8]), #stale
  for i = 1, #page[2], step do
    local entry = page[2][i]
    if not rules[rule](name, entry) then
      stale[#stale + 1] = name .. ' ' .. entry
      if delete then call(remove, P .. name, entry) end
    end
  end
  checked = checked + 1 + #page[2] / step
  local uid = string.match(name, '^u:(%d+):hnr$')
  if uid and delete and #stale > before then rank_hit_and_runs(uid) end
  return page[1]
end

-- Returns the cursor to go on at.
local function check(name, from)
  local kind = call('TYPE', P .. name).ok
  if kind ~= ARGV[6] and kind ~= 'none' then
    wrong[#wrong + 1] = name
    if delete then call('UNLINK', P .. name) end
  elseif rule ~= '' and kind ~= 'none' then
    if of_entries then return check_entries(name, kind, from) end
    check_key(name)
  end
  return '0'
end

local done, cursor = 0, ARGV[7]
while ARGV[9 + done] and checked < tonumber(ARGV[8]) do
  local ok, go_on = pcall(check, ARGV[9 + done], cursor)
  cursor = ok and go_on or '0' -- a check fails when another key is of a wrong type, which the next pass deletes first
  if cursor ~= '0' then break end
  done = done + 1
end
return { done, cursor, stale, wrong }
