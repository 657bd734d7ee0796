#!lua flags=allow-oom
-- upgrade_swarms.lua: layout 2 has one field for the lengths of a torrent's arrays, and knows which peers of a user
-- overlap (`peer_ids` of an account, `marks` of a peer). Its keys of clients are another digest.
-- ARGV[1..] torrent ids
-- Answer    nothing
local P, call = KEYS[1], redis.call
local BEFORE = { 's4', 'l4', 's6', 'l6', 'crowded' }
local LISTED = 8 -- as credit.lua lists them

local function join_arrays(key)
  local v, numbers = call('HMGET', key, unpack(BEFORE)), {}
  for i = 1, 5 do numbers[i] = tonumber(v[i] or '') or 0 end
  local s4, l4, s6, l6, crowded = unpack(numbers)
  local text = string.format('%.0f %.0f', s4, l4)
  if s6 + l6 + crowded > 0 then text = text .. string.format(' %.0f %.0f 0 0 %.0f', s6, l6, crowded) end
  if call('HSETNX', key, 'arrays', text) == 1 then call('HDEL', key, unpack(BEFORE)) end
end

local function note_peers(ih, tid)
  local peers_of = {}
  for _, pidx in ipairs(call('SMEMBERS', P .. 'tpeers:' .. ih)) do
    local uid = call('HGET', P .. 'p:' .. tid .. ':' .. pidx, 'user_id')
    call('HDEL', P .. 'p:' .. tid .. ':' .. pidx, 'key')
    if uid then
      peers_of[uid] = peers_of[uid] or {}
      table.insert(peers_of[uid], pidx)
    end
  end
  for uid, peers in pairs(peers_of) do
    local ids = {}
    for i = math.max(1, #peers - LISTED + 1), #peers do
      ids[#ids + 1] = string.gsub(peers[i], '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
    end
    local account = P .. 'u:' .. uid .. ':t:' .. tid
    local number = tonumber(call('HGET', account, 'peers') or '') -- one may be active by the v2 half of a hybrid alone
    if number then call('HSET', account, 'peer_ids', table.concat(ids)) end
    for _, pidx in ipairs(number == 1 and #peers == 1 and {} or peers) do
      call('HSET', P .. 'p:' .. tid .. ':' .. pidx, 'marks', 'x')
    end
  end
end

for _, tid in ipairs(ARGV) do
  local ih = redis.pcall('GET', P .. 'torrent_id:' .. tid)
  if type(ih) == 'string' then -- a key of a wrong type must not keep others from being upgraded
    pcall(join_arrays, P .. 't:' .. ih)
    pcall(note_peers, ih, tid)
  end
end
