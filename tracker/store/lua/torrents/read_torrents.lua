#!lua flags=no-writes
-- read_torrents.lua: reads torrents.
-- KEYS[1]   the prefix
-- ARGV[1]   '1': by id, else by info hash   ARGV[2..] ids, or info hashes (40 hex digits)
-- Answer    for each: nil if the id is unknown, else its info hash, its registered id or nil, the reason of its denial
--   or nil, pairs of field and value, its score or nil
local P, call = KEYS[1], redis.call

local function score_of(id, fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'tid' then id = fields[i + 1] end
  end
  return id and call('ZSCORE', P .. 'i:score', id)
end

local function read(name)
  local ih = name
  if ARGV[1] == '1' then ih = call('GET', P .. 'torrent_id:' .. name) end
  if not ih then return false end
  local keys = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local fields = redis.pcall('HGETALL', P .. 't:' .. ih)
  if fields.err then fields = {} end
  return { ih, keys[1], keys[2], fields, score_of(keys[1], fields) }
end

local answers = {}
for i = 2, #ARGV do answers[i - 1] = read(ARGV[i]) end
return answers
