#!lua flags=no-writes
-- read_torrents.lua: reads torrents.
-- ARGV[1]   '1': by id, else by info hash   ARGV[2..] ids, or info hashes (40 hex digits)
-- Answer    for each: nil if the id is unknown, else its info hash, its registered id or nil, the reason of its denial
--   or nil, pairs of field and value, its score or nil
local P, call = KEYS[1], redis.call

local function values(keys)
  return keys[1] and call('MGET', unpack(keys)) or {}
end

local function fields_of(ih)
  local fields = redis.pcall('HGETALL', P .. 't:' .. ih)
  return fields.err and {} or fields
end

local function id_in(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'tid' then return fields[i + 1] end
  end
end

local names, hashes, places = { unpack(ARGV, 2) }, {}, {}
local found = names
if ARGV[1] == '1' then
  local keys = {}
  for i, id in ipairs(names) do keys[i] = P .. 'torrent_id:' .. id end
  found = values(keys)
end
for i = 1, #names do
  if found[i] then hashes[#hashes + 1], places[#hashes + 1] = found[i], i end
end

local id_keys, denial_keys = {}, {}
for i, ih in ipairs(hashes) do
  id_keys[i], denial_keys[i] = P .. 'info_hash:' .. ih, P .. 'deny:' .. ih
end
local ids, denials = values(id_keys), values(denial_keys)
local answers, ranked, of = {}, {}, {}
for i = 1, #names do answers[i] = false end
for i, ih in ipairs(hashes) do
  local fields = fields_of(ih)
  answers[places[i]] = { ih, ids[i], denials[i], fields, false }
  local id = id_in(fields) or ids[i]
  if id then ranked[#ranked + 1], of[#of + 1] = id, answers[places[i]] end
end
local scores = ranked[1] and call('ZMSCORE', P .. 'i:score', unpack(ranked)) or {}
for i, score in ipairs(scores) do of[i][5] = score end
return answers
