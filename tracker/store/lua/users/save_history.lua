#!lua
-- save_history.lua: writes what users have on torrents of this shard. A repeated call changes nothing.
-- ARGV[1]   '1': what changes is added to the totals of user and torrent   ARGV[2] now (epoch s)
-- ARGV[3..] the rows, JSON: user_id, torrent_id, and as text what is given: uploaded, downloaded, credited_uploaded,
--   credited_downloaded, seed_seconds, total_seconds, completed_at (0: not completed), first_seen, last_seen;
--   hit_and_run, immune: 0 or 1
-- Answer    for each row 1 new, 0 known; or why nothing was changed: 'user' or 'torrent' unknown, 'deleting', 'error'
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[2]) -- luacheck: ignore 211
--@ include lib/numbers.lua
COUNTER_MAX, MAX_COUNT = '9007199254740991', MAX_EXACT
--@ include lib/hit_and_runs.lua
--@ include lib/edits.lua
local STORED = { seed_seconds = 'seed_time', total_seconds = 'total_time', completed_at = 'completed_at',
  first_seen = 'first_seen', last_seen = 'last_seen', immune = 'immune' }

local function add_total(key, field, by)
  local sum = by ~= 0 and add_bounded(key, field, by)
  if sum and sum < 0 then call('HSET', key, field, 0) end
end

-- A counter and how it was credited: without a credit of its own, as it is. Returns by how much the credit changes.
local function put_counter(account, row, name, credit, extra)
  local v = call('HMGET', account, name, extra)
  local held, held_extra = whole_field(v[1]), whole(v[2])
  if not row[name] and not row[credit] then return 0 end
  local moved = row[name] and tonumber(row[name]) or held
  local credited = row[credit] and tonumber(row[credit]) or moved
  call('HSET', account, name, moved, extra, credited - moved)
  return credited - held - held_extra
end

local function put_sets(user, row, completed)
  if completed or row.seed_seconds and row.seed_seconds ~= '0' then
    call('SREM', user .. ':incomplete', row.torrent_id)
    call('SADD', user .. ':complete', row.torrent_id)
  elseif call('SISMEMBER', user .. ':complete', row.torrent_id) == 0 then
    call('SADD', user .. ':incomplete', row.torrent_id)
  end
  if row.hit_and_run then
    call(row.hit_and_run == '1' and 'SADD' or 'SREM', user .. ':hnr', row.torrent_id)
    rank_hit_and_runs(row.user_id)
  end
end

local function save(row)
  local user, ih = P .. 'u:' .. row.user_id, call('GET', P .. 'torrent_id:' .. row.torrent_id)
  if call('SISMEMBER', P .. 'deleting', row.user_id) == 1 then return 'deleting' end
  if not call('HGET', user, 'passkey') then return 'user' end
  if not ih then return 'torrent' end
  if row.completed_at == '0' then row.completed_at = nil end
  local account = user .. ':t:' .. row.torrent_id
  local known = call('HMGET', account, 'peers', 'completed_at')
  for _, set in ipairs({ ':complete', ':incomplete', ':hnr' }) do -- one of a wrong type fails before the first write
    call('SCARD', user .. set)
  end
  local up = put_counter(account, row, 'uploaded', 'credited_uploaded', 'extra_up')
  local down = put_counter(account, row, 'downloaded', 'credited_downloaded', 'extra_dn')
  for name, field in pairs(STORED) do
    if row[name] then call('HSET', account, field, row[name]) end
  end
  call('HSETNX', account, 'peers', 0)
  put_sets(user, row, known[2] or row.completed_at)
  if ARGV[1] == '1' then
    add_total(user, 'uploaded', up)
    add_total(user, 'downloaded', down)
    if row.completed_at and not known[2] then
      add_bounded(user, 'snatches', 1)
      call('ZADD', P .. 'i:snatches', add_bounded(P .. 't:' .. ih, 'snatches', 1), row.torrent_id)
    end
  end
  if sharded then note_changed(row.user_id) end
  record_edit(row.user_id, ih)
  return known[1] and 0 or 1
end

local answers = {}
for i = 3, #ARGV do
  local ok, answer = pcall(save, cjson.decode(ARGV[i]))
  answers[i - 2] = ok and answer or 'error'
end
return answers
