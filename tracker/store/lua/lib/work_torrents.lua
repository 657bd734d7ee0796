-- work_torrents.lua: torrents as work distribution sees them.
--@ include lib/numbers.lua
--@ include lib/counts.lua
--@ include lib/hex.lua

-- Fields of a hash that another program may have overwritten. A key of a wrong type must not keep others from being
-- looked at: it has no fields, where one that is missing has all of them without a value.
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

local MAX_PEERS = 1000 -- of a kind and family that are looked at; a torrent with more is in no need

-- 's' when a seeder of the torrent has the endpoint (packed, in hex digits), 'l' when a leecher has; else nil. Then
-- when that peer announced last (epoch s).
local function kind_at(ih, endpoint)
  local packed = string.gsub(endpoint, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  local size, family = #packed, #packed == 6 and '4' or '6'
  if size == 0 then return nil end
  local numbers = read_arrays(read_fields(P .. 't:' .. ih, 'arrays')[1])
  for i, kind in ipairs({ 's', 'l' }) do
    local slots, swarm = math.min(MAX_PEERS, numbers[family == '4' and i or 2 + i]), P .. 'swarm:' .. ih .. ':'
    local peers = slots > 0 and redis.pcall('GETRANGE', swarm .. kind .. family, 0, size * slots - 1)
    local at = type(peers) == 'string' and string.find(peers, packed, 1, true)
    while at and (at - 1) % size > 0 do at = string.find(peers, packed, at + 1, true) end
    if at then
      local slot, tid = (at - 1) / size, redis.pcall('HGET', P .. 't:' .. ih, 'tid')
      local ids = swarm .. kind .. family .. 'i'
      local pid = call('GETRANGE', ids, 20 * slot, 20 * slot + 19)
      local last = type(tid) == 'string' and #pid == 20
        and redis.pcall('HGET', P .. 'p:' .. tid .. ':' .. to_hex(pid), 'last_announce')
      return kind, type(last) == 'string' and last or ''
    end
  end
end

local MAX_LOOKED_AT = 50 -- seeders of a family; a torrent with more is in no need

-- The endpoint of a user's seeder, packed; '' when there is none among the first ones.
local function endpoint_of_seeder(ih, tid, claimant)
  local numbers = read_arrays(read_fields(P .. 't:' .. ih, 'arrays')[1])
  for i, family in ipairs({ '4', '6' }) do
    local size, swarm = family == '4' and 6 or 18, P .. 'swarm:' .. ih .. ':'
    local seeders = math.min(MAX_LOOKED_AT, numbers[2 * i - 1])
    local ids = seeders > 0 and redis.pcall('GETRANGE', swarm .. 's' .. family .. 'i', 0, 20 * seeders - 1)
    if type(ids) == 'string' then
      for slot = 0, #ids / 20 - 1 do
        local pid = to_hex(string.sub(ids, 20 * slot + 1, 20 * slot + 20))
        local user = redis.pcall('HGET', P .. 'p:' .. tid .. ':' .. pid, 'user_id')
        if user == claimant then
          return call('GETRANGE', swarm .. 's' .. family, size * slot, size * slot + size - 1)
        end
      end
    end
  end
  return ''
end
