-- torrent_ids.lua: removes a torrent id.

-- Removes the id from all rankings and indexes. Returns from how many rankings.
local function remove_from_rankings(tid)
  local removed = 0
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches', 'score', 'processed' }) do
    removed = removed + call('ZREM', P .. 'i:' .. index, tid)
  end
  for _, index in ipairs({ 'added', 'active', 'size', 'disabled', 'pending', 'private' }) do
    redis.pcall('ZREM', P .. 'i:torrent_' .. index, tid)
  end
  redis.pcall('ZREM', P .. 'i:info_hash', tid)
  redis.pcall('ZREM', P .. 'i:empty', tid)
  redis.pcall('ZREM', P .. 'i:dht', tid)
  return removed
end

-- Deletes what belongs to the torrent's id and returns true, unless the id belongs to another torrent now.
local function release_torrent_id(t)
  local owner = call('GET', P .. 'torrent_id:' .. t.tid)
  if owner and owner ~= t.ih then return end
  call('UNLINK', P .. 'torrent_id:' .. t.tid, P .. 'history:' .. t.tid, P .. 'completed:' .. t.tid)
  remove_from_rankings(t.tid)
  return true
end
