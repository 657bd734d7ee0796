-- renewing.lua: the regular announce, nine of ten: the peer is in the swarm already, and keeps its place. A fragment for
-- announce.lua, after picking.lua and figures.lua.
--
-- What it does is what changing.lua does for the same announce, without what that needs for all the others. It reads, and
-- writes only when it knows that this is such an announce; nil says that it is not, and that nothing was written.
local UPDATE = 117 -- 'u'

local function renew(packed, ih, tid)
  local pidx, event, with_ids, want, timeout, random, uploaded, downloaded, left, endpoint =
    read('<c40BBHI4I4sssBc0', packed, 41)
  if event ~= UPDATE then return end
  local torrent = P .. 't:' .. ih
  local suffix, seeding, t, was = tid .. ':' .. pidx, left == '0', nil, nil
  local key = P .. 'p:' .. suffix
  if seeding then -- is told of leechers only, and never paused
    t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'l4', 'l6')
  else
    t = call('HMGET', torrent, 'tid', 'enabled', 'seeders', 'leechers', 'snatches', 'l4', 'l6', 's4', 's6')
  end
  if t[1] ~= tid or t[2] == '0' then return end
  if seeding then
    was = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'speed_up')
  else
    was = call('HMGET', key, 'endpoints', 'left', 'uploaded', 'downloaded', 'last_announce', 'total_time', 'speed_up', 'paused')
  end
  local endpoints, on_v4, mine4, mine6 = was[1], #endpoint == 6, nil, nil
  if endpoints == endpoint then
    if on_v4 then mine4 = endpoint else mine6 = endpoint end
  elseif endpoints and #endpoints == 24 then
    mine4, mine6 = sub(endpoints, 1, 6), sub(endpoints, 7)
    if endpoint ~= mine4 and endpoint ~= mine6 then return end
  else
    return
  end
  if (was[2] == '0') ~= seeding or was[8] == '1' then return end

  local elapsed = now - was[5]
  local reply = (elapsed < early and elapsed >= 0 and 'e ' or 'u ') .. t[3] .. ' ' .. t[4] .. ' ' .. (t[5] or '0') .. ' '
  if #reply > 50 or not find(reply, '^[eu] %d+ %d+ %d+ $') then return end -- somebody else wrote there
  if want > 0 then
    reply = answer(reply, P .. 'swarm:' .. ih .. ':', (t[8] or 0) + 0, (t[9] or 0) + 0, (t[6] or 0) + 0, (t[7] or 0) + 0, want,
      random, with_ids == 1, on_v4, mine4, mine6)
  end
  local up, down, total_time = 0, 0, was[6] or 0
  if uploaded ~= (was[3] or '0') then up = max(0, uploaded - (was[3] or 0)) end
  if downloaded ~= (was[4] or '0') then down = max(0, downloaded - (was[4] or 0)) end
  if elapsed > 0 and elapsed < longest_gap then total_time = total_time + elapsed - away(now - elapsed) end
  if call('PEXPIRE', P .. 'ptimeout:' .. suffix, timeout) == 0 then return end
  call('HINCRBY', torrent, 'announces', 1)
  write_figures(key, was, left, uploaded, downloaded, up, down, elapsed, total_time)
  if up + down > 0 then note_moved(up, down, elapsed, on_v4) end
  return reply
end
