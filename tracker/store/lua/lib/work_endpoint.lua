-- work_endpoint.lua: where a user seeds.
--@ include lib/work_torrents.lua

local MAX_LOOKED_AT = 50 -- seeders of a family; a torrent with more is in no need

-- The endpoint of a user's seeder, packed; '' when there is none among the first ones.
local function endpoint_of_seeder(ih, tid, claimant)
  local counts = read_fields(P .. 't:' .. ih, 's4', 's6')
  for i, family in ipairs({ '4', '6' }) do
    local size, swarm = family == '4' and 6 or 18, P .. 'swarm:' .. ih .. ':'
    local seeders = math.min(MAX_LOOKED_AT, whole(counts[i]))
    local ids = seeders > 0 and redis.pcall('GETRANGE', swarm .. 's' .. family .. 'i', 0, 20 * seeders - 1)
    if type(ids) == 'string' then
      for slot = 0, #ids / 20 - 1 do
        local pid = string.gsub(string.sub(ids, 20 * slot + 1, 20 * slot + 20), '.', function(byte)
          return string.format('%02x', string.byte(byte))
        end)
        local user = redis.pcall('HGET', P .. 'p:' .. tid .. ':' .. pid, 'user_id')
        if user == claimant then
          return call('GETRANGE', swarm .. 's' .. family, size * slot, size * slot + size - 1)
        end
      end
    end
  end
  return ''
end
