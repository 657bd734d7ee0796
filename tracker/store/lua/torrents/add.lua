#!lua
-- add.lua: registers torrents by hand. A known torrent keeps its id, its counts and its swarm.
-- ARGV[1]   now (epoch s)
-- ARGV[2..] the torrents, each as JSON: info_hash (40 hex digits); the fields to set; `folded`, the folded name if a
--   name is among them; id of a new torrent, '' for the next one; snatches of a new torrent, '' for 0; kept: the fields
--   that a known torrent keeps if it has them
-- Answer    for each { its id, 1 when it was new }; false when a site registered it under an invalid id; 'id' when it
--   has another id, 'taken' when another torrent has the id, 'error' when a key is of a wrong type
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/registration.lua
--@ include lib/names.lua
--@ include lib/index_entries.lua
--@ include lib/edits.lua
--@ include lib/refused_torrents.lua
check_rankings()
local new = {}

local function add(torrent)
  local t, listed, auto, joiners = load_torrent(torrent.info_hash, 'listed', 'auto', 'joiners')
  local registered = call('GET', P .. 'info_hash:' .. t.ih)
  if registered and (#registered > 15 or not string.match(registered, '^[1-9]%d*$')) then return false end
  local wanted = torrent.id ~= '' and torrent.id
  if wanted and registered and registered ~= wanted then return 'id' end
  if wanted and (call('GET', P .. 'torrent_id:' .. wanted) or t.ih) ~= t.ih then return 'taken' end
  local tid, fields = registered or register(t, wanted), torrent.fields
  for _, name in ipairs(registered and torrent.kept or {}) do
    if (call('HGET', t.key, name) or '') ~= '' then
      fields[name] = nil
      if name == 'name' then torrent.folded = nil end
    end
  end
  if not registered and torrent.snatches ~= '' then call('HSETNX', t.key, 'snatches', torrent.snatches) end
  -- Peers keep the id that they joined with; an id that was assigned since has to wait until they are gone.
  if t.seeders + t.leechers == 0 and not (registered and is_id_taken(t, tid)) then bind_id(t, tid) end
  if auto or joiners then
    call('HDEL', t.key, 'auto', 'joiners', 'by')
    if joiners and string.sub(joiners, 1, 1) == 'D' then call('HSET', t.key, 'joiners', 'D') end -- without the address
    redis.pcall('ZREM', P .. 'i:empty', tid)
  end
  if not registered then
    fields.added = string.format('%d', now) -- it may have peers of an earlier registration
    new[tid] = true
  end
  if torrent.folded and torrent.folded ~= '' then fields.listed = torrent.folded end
  local pairs_of, n = {}, 0
  for name, value in pairs(fields) do
    pairs_of[n + 1], pairs_of[n + 2], n = name, value, n + 2
  end
  if n > 0 then call('HSET', t.key, unpack(pairs_of)) end
  if torrent.folded == '' and listed then call('HDEL', t.key, 'listed') end
  if torrent.folded then index_name(P .. 'i:name', t.ih, listed, torrent.folded) end
  if t.tid == tid then note_torrent(tid, t.key) end -- else the id has to wait, and is in no ranking yet
  return { tid, registered and 0 or 1 }
end

local answers = {}
for i = 2, #ARGV do
  local torrent = cjson.decode(ARGV[i])
  local ok, answer = pcall(add, torrent)
  if ok then answers[i - 1] = answer else answers[i - 1] = 'error' end
  if ok and type(answer) == 'table' then
    if torrent.fields.enabled and torrent.fields.enabled ~= '1' then note_refusal(torrent.info_hash) end
    record_edit('', torrent.info_hash)
    redis.pcall('PUBLISH', P .. 'torrents', torrent.info_hash)
  end
end
write_index_entries()
add_to_scoring(new, true)
return answers
