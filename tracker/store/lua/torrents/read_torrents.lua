#!lua flags=no-writes
-- read_torrents.lua: reads torrents.
-- ARGV[1]   '1': by id, else by info hash   ARGV[2..] ids, or info hashes (40 hex digits)
-- Answer    for each: nil if the id is unknown, else its info hash, its registered id or nil, the reason of its denial
--   or nil, pairs of field and value, its score or nil
local P, call = KEYS[1], redis.call

local function read(name)
  local ih = name
  if ARGV[1] == '1' then ih = call('MGET', P .. 'torrent_id:' .. name)[1] end
  if not ih then return false end
  local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local fields = redis.pcall('HGETALL', P .. 't:' .. ih)
  if fields.err then fields = {} end
  local id = known[1]
  for i = 1, #fields, 2 do
    if fields[i] == 'tid' then id = fields[i + 1] end
  end
  return { ih, known[1], known[2], fields, id and call('ZSCORE', P .. 'i:score', id) }
end

local answers = {}
for i = 2, #ARGV do answers[i - 1] = read(ARGV[i]) end
return answers
