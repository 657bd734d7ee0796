#!lua flags=no-writes
-- read_torrents.lua: reads torrents.
-- ARGV[1]   '1': by id, else by info hash   ARGV[2..] ids, or info hashes (40 hex digits)
-- Answer    for each: nil if the id is unknown, else its info hash, its registered id or nil, the reason of its denial
--   or nil, pairs of field and value, its score or nil
local P, call = KEYS[1], redis.call

-- MGET, because GET would fail on a key of another type.
local function read(ih)
  local id, denial = unpack(call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih))
  local fields = redis.pcall('HGETALL', P .. 't:' .. ih)
  local ranked = id
  for i = 1, #fields, 2 do
    if fields[i] == 'tid' then ranked = fields[i + 1] end
  end
  return { ih, id, denial, fields.err and {} or fields, ranked and call('ZSCORE', P .. 'i:score', ranked) }
end

local answers = {}
for i = 2, #ARGV do
  local ih = ARGV[1] ~= '1' and ARGV[i] or call('MGET', P .. 'torrent_id:' .. ARGV[i])[1]
  answers[i - 1] = ih and read(ih)
end
return answers
