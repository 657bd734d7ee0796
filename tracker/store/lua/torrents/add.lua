#!lua
-- add.lua: registers torrents by hand. A known torrent keeps its id, its counts and its swarm.
-- KEYS[1]   the prefix
-- ARGV[1]   now (epoch s)
-- ARGV[2..] the torrents, each: info hash (40 hex digits); '1' when its name is among the fields, and that name folded;
--   snatches of a new torrent, '' for 0; then the number of following arguments: pairs of field and value to set
-- Answer    for each { its id, 1 when it was new }; false when a site registered it under an invalid id; 'error' when a
--   key is of a wrong type
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/torrent.lua
--@ include lib/torrent_ids.lua
--@ include lib/torrent_rankings.lua
--@ include lib/info_hash_index.lua
--@ include lib/registration.lua
--@ include lib/new_torrent_id.lua
--@ include lib/names.lua
--@ include lib/edits.lua
check_rankings()
local new = {}

local function add(ih, named, folded, snatches, fields)
  local t = load_torrent(ih)
  local registered = call('GET', P .. 'info_hash:' .. t.ih)
  if registered and (#registered > 15 or not string.match(registered, '^[1-9]%d*$')) then return false end
  local tid = registered or register(t)
  if not registered and snatches ~= '' then call('HSETNX', t.key, 'snatches', snatches) end
  -- Peers keep the id that they joined with; an id that was assigned since has to wait until they are gone.
  if t.seeders + t.leechers == 0 and not is_id_taken(t, tid) then bind_id(t, tid) end
  call('HDEL', t.key, 'auto', 'sole')
  redis.pcall('ZREM', P .. 'i:empty', tid)
  if #fields > 0 then call('HSET', t.key, unpack(fields)) end
  if named then list_name(P .. 't:' .. t.ih, P .. 'i:name', t.ih, folded) end
  if not registered then
    call('HSET', t.key, 'added', string.format('%d', now)) -- it may have peers of an earlier registration
    new[#new + 1] = tid
  end
  return { tid, registered and 0 or 1 }
end

local answers, at = {}, 2
while ARGV[at] do
  local last = at + 4 + tonumber(ARGV[at + 4])
  local fields = { unpack(ARGV, at + 5, last) }
  local ok, answer = pcall(add, ARGV[at], ARGV[at + 1] == '1', ARGV[at + 2], ARGV[at + 3], fields)
  if ok then answers[#answers + 1] = answer else answers[#answers + 1] = 'error' end
  if ok and answer then
    record_edit('', ARGV[at])
    redis.pcall('PUBLISH', P .. 'torrents', ARGV[at])
  end
  at = last + 1
end
add_to_scoring(new)
return answers
