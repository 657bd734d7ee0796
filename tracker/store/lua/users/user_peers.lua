#!lua flags=no-writes
-- user_peers.lua: finds the active peers of a user in some torrents.
-- ARGV[1]   user id   ARGV[2] max members of swarms to look at, approximately   ARGV[3..] torrent ids
-- Answer    { 1 if all of them were found, else 0; for each peer: torrent id, peer id (hex) }
local P, call, uid, left = KEYS[1], redis.call, ARGV[1], tonumber(ARGV[2])
local found, is_complete = {}, 1
--@ include lib/hex.lua

-- An account says how many of the user's peers are in the swarm, and may list their ids. Other swarms are searched.
local function find(tid)
  local account = call('HMGET', P .. 'u:' .. uid .. ':t:' .. tid, 'peers', 'peer_ids')
  local wanted, listed, seen = tonumber(account[1] or '') or 0, account[2] or '', {}
  local function try(pidx)
    if seen[pidx] then return end
    local v = call('HMGET', P .. 'p:' .. tid .. ':' .. pidx, 'active', 'user_id')
    if v[1] ~= '1' or v[2] ~= uid then return end
    seen[pidx], wanted = true, wanted - 1
    found[#found + 1], found[#found + 2] = tid, pidx
  end
  for at = 1, #listed - 19, 20 do try(to_hex(string.sub(listed, at, at + 19))) end
  local ih, cursor = call('GET', P .. 'torrent_id:' .. tid), '0'
  while ih and wanted > 0 do
    if left <= 0 then
      is_complete = 0
      return
    end
    local page = call('SSCAN', P .. 'tpeers:' .. ih, cursor, 'COUNT', 100)
    cursor, left = page[1], left - #page[2]
    for _, pidx in ipairs(page[2]) do try(pidx) end
    if cursor == '0' then return end
  end
end

for i = 3, #ARGV do pcall(find, ARGV[i]) end -- a key of a wrong type: leave this torrent out
return { is_complete, found }
