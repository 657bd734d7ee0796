-- rebuild.lua: rebuilds a swarm from the hashes of its peers, O(swarm). It is needed only after other programs changed
-- keys. A fragment of sweep.lua, after recount.lua, swarm.lua and changes.lua.

-- Deletes the addresses of a swarm, and subtracts them from the counts of all swarms.
local function drop_addresses(t)
  local key = P .. 'addresses:' .. t.ih
  local page = call('HGETALL', key)
  for i = 1, #page, 2 do
    local net = page[i]
    if #net == 4 or #net == 8 then count_entries(net, -math.floor(#page[i + 1] / entry_size(net))) end
  end
  call('UNLINK', key)
  t.crowded = 0
end

-- The ids of all peers that the member set or an array names.
local function all_members(t)
  local ids, seen = {}, {}
  local function add(pidx)
    if not seen[pidx] then
      seen[pidx], ids[#ids + 1] = true, pidx
    end
  end
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. t.ih)) do add(pidx) end
  for _, name in ipairs(ARRAYS) do
    local packed = call('GETRANGE', t.arrays .. name .. 'i', 0, -1)
    for at = 1, #packed - 19, 20 do add(to_hex(string.sub(packed, at, at + 19))) end
  end
  return ids
end

local function remove_invalid(t, key, pidx, active)
  call('SREM', P .. 'tpeers:' .. t.ih, pidx)
  call('SREM', P .. 'p:' .. pidx .. ':torrents', t.tid)
  if active == '1' or not active then call('UNLINK', key) end
end

local function readmit(t, pidx)
  local key = P .. 'p:' .. t.tid .. ':' .. pidx
  local p = call('HMGET', key, 'active', 'left', 'paused', 'endpoints')
  local v4, v6 = endpoint_of(p[4], '4'), endpoint_of(p[4], '6')
  if p[1] ~= '1' or call('EXISTS', P .. 'ptimeout:' .. t.tid .. ':' .. pidx) == 0
      or #(p[4] or '') ~= #(v4 or '') + #(v6 or '') or not (v4 or v6) then
    return remove_invalid(t, key, pidx, p[1])
  end
  local kind, pid = kind_of(p[2], p[3]), to_raw(pidx)
  call('HDEL', key, 'n4', 'n6')
  call('SADD', P .. 'p:' .. pidx .. ':torrents', t.tid)
  for _, own in ipairs({ { '4', v4 }, { '6', v6 } }) do
    local family, endpoint = own[1], own[2]
    if endpoint then
      add_address(t, endpoint, pid)
      call('HSET', key, 'n' .. family, insert_slot(t, kind, family, endpoint, pid))
    end
  end
  call('SADD', P .. 'tpeers:' .. t.ih, pidx)
  count_peer(t, kind, p[3] == '1', 1)
end

local function rebuild(t)
  local ids = all_members(t)
  for _, name in ipairs(ARRAYS) do
    call('UNLINK', t.arrays .. name, t.arrays .. name .. 'i')
    t[name] = 0
  end
  t.seeders, t.leechers, t.paused = 0, 0, 0
  drop_addresses(t)
  call('HDEL', t.key, 'paused')
  for _, pidx in ipairs(ids) do readmit(t, pidx) end
  save_torrent(t)
  if t.seeders + t.leechers > 0 then redis.pcall('ZREM', P .. 'i:empty', t.tid) end
  write_rankings(t, t.tid)
  if max_changes > 0 then record_change('recounted', t, '', '', '', '', '', '') end
end
