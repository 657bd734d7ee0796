-- announce_regular.lua: the regular announce, nine of ten: the peer is in the swarm and keeps its slots. A fragment of
-- announce.lua, after peer_selection.lua and traffic.lua.
--
-- It does what announce_other.lua does for the same announce, without the work that only other announces need. It reads
-- first, and writes only when the announce is a regular one; nil says that it is not and that nothing was written. The
-- caller counts the announce for the torrent, because the count may be late.
local UPDATE = 117 -- 'u'

local function announce_regular(packed, ih, tid)
  local pidx, event, with_ids, want, timeout, random, uploaded, downloaded, left, endpoint =
    read('<c40BBHI4I4sssBc0', packed, 41)
  if event ~= UPDATE then return end
  local torrent = P .. 't:' .. ih
  local suffix, seeding = tid .. ':' .. pidx, left == '0'
  local key = P .. 'p:' .. suffix
  local t, stored
  if give_below > 0 then
    t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'l4', 'l6', 'crowded', 's4', 's6',
      'dht')
    if seeding then t[9], t[10] = false, false end
  elseif seeding then -- gets leechers only, and is never paused
    t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'l4', 'l6', 'crowded')
  else
    t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'l4', 'l6', 'crowded', 's4', 's6')
  end
  if t[1] ~= tid or t[2] == '0' then return end
  if seeding then
    stored = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time',
      'speed_up')
  else
    stored = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time',
      'speed_up', 'paused')
  end
  local endpoints, on_v4, own4, own6 = stored[1], #endpoint == 6, nil, nil
  if endpoints == endpoint then
    if on_v4 then own4 = endpoint else own6 = endpoint end
  elseif endpoints and #endpoints == 24 then
    own4, own6 = sub(endpoints, 1, 6), sub(endpoints, 7)
    if endpoint ~= own4 and endpoint ~= own6 then return end
  else
    return
  end
  if (stored[2] == '0') ~= seeding or stored[8] == '1' then return end

  local elapsed = now - stored[5]
  if elapsed < 0 then elapsed = since_step_back(elapsed) end
  local outcome = elapsed < early and elapsed >= 0 and 'f ' or 'r '
  local reply = outcome .. t[3] .. ' ' .. t[4] .. ' ' .. (t[5] or '0') .. ' '
  if #reply > 50 or not find(reply, '^[fr] %d+ %d+ %d+ $') then return end -- another program wrote these counts
  if want > 0 then
    if with_ids == 2 then -- no peers of the other family
      if on_v4 then t[7], t[10] = 0, 0 else t[6], t[9] = 0, 0 end
    end
    reply = add_peers(reply, P .. 'swarm:' .. ih .. ':', (t[9] or 0) + 0, (t[10] or 0) + 0, (t[6] or 0) + 0,
      (t[7] or 0) + 0, want, random, with_ids == 1, on_v4, own4, own6, t[8],
      with_ids == 1 and call('HGET', torrent, 'derived') and tid, t[11])
  end
  local up, down, total_time = 0, 0, stored[6] or 0
  if uploaded ~= (stored[3] or '0') then up = max(0, uploaded - (stored[3] or 0)) end
  if downloaded ~= (stored[4] or '0') then down = max(0, downloaded - (stored[4] or 0)) end
  if elapsed > 0 then
    local time = elapsed - time_away(now - elapsed)
    if time < max_gap then total_time = total_time + time end
  end
  if call('PEXPIRE', P .. 'ptimeout:' .. suffix, timeout) == 0 then return end
  write_traffic(key, stored, left, uploaded, downloaded, up, down, elapsed, total_time)
  if up + down > 0 then add_traffic(up, down, elapsed, on_v4, with_ids == 2) end
  return reply
end
