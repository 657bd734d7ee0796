#!lua flags=no-writes
-- read_torrents.lua: reads torrents.
-- ARGV[1]   '1': by id, else by info hash   ARGV[2..] ids, or info hashes (40 hex digits)
-- Answer    for each: nil if the id is unknown, else its info hash, its registered id or nil, the reason of its denial
--   or nil, pairs of field and value, its score or nil
local P, call = KEYS[1], redis.call

local function values(keys)
  return keys[1] and call('MGET', unpack(keys)) or {}
end

local names, keys, answers = { unpack(ARGV, 2) }, {}, {}
local hashes = names -- false for an unknown id
if ARGV[1] == '1' then
  for i, id in ipairs(names) do keys[i] = P .. 'torrent_id:' .. id end
  hashes, keys = values(keys), {}
end
for i = 1, #names do
  local ih = hashes[i] or ''
  keys[2 * i - 1], keys[2 * i] = P .. 'info_hash:' .. ih, P .. 'deny:' .. ih
end
local stored, ranked, of = values(keys), {}, {}
for i = 1, #names do
  local ih, id = hashes[i], stored[2 * i - 1]
  answers[i] = false
  if ih then
    local fields = redis.pcall('HGETALL', P .. 't:' .. ih)
    if fields.err then fields = {} end
    answers[i] = { ih, id, stored[2 * i], fields, false }
    for n = 1, #fields, 2 do
      if fields[n] == 'tid' then id = fields[n + 1] end
    end
    if id then ranked[#ranked + 1], of[#of + 1] = id, answers[i] end
  end
end
local scores = ranked[1] and call('ZMSCORE', P .. 'i:score', unpack(ranked)) or {}
for i, score in ipairs(scores) do of[i][5] = score end
return answers
