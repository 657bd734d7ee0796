-- work_torrents.lua: what work distribution reads of a torrent, and of a user's account on it. After `P` and `call`.

-- Fields of a hash that another program may have overwritten. A key of a wrong type counts as missing: it must not keep
-- others from being looked at.
local function read_fields(key, ...)
  local v = redis.pcall('HMGET', key, ...)
  return v.err and {} or v
end

local TORRENT_FIELDS = { 'tid', 'user_downloaded', 'size', 'enabled', 'private' }
local ACCOUNT_FIELDS = { 'seed_time', 'uploaded', 'downloaded', 'left', 'until', 'peers', 'total_time' }

-- With several shards, projects are under the main prefix, and their torrents in shards. Then the caller passes on what
-- work_facts.lua has read in the shards.
local under_main = string.find(P, ':{main}:$')

-- The facts in ARGV from `first` on, by the names before them; nil where the torrents are under the same prefix. Those
-- of an unavailable shard are empty.
local function given_facts(first)
  if not under_main then return nil end
  local facts = {}
  for i = first, #ARGV, 2 do
    facts[ARGV[i]] = ARGV[i + 1] ~= '' and cmsgpack.unpack(ARGV[i + 1]) or { unavailable = true }
  end
  return facts
end
