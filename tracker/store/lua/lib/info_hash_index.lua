-- info_hash_index.lua: lists a torrent in `i:info_hash`.

-- The score is the number of the first 13 hex digits: no more fit into a score exactly.
local function index_info_hash(ih, tid)
  redis.pcall('ZADD', P .. 'i:info_hash', string.format('%.0f', tonumber(string.sub(ih, 1, 13), 16)), tid)
end
