#!lua flags=allow-oom
-- sweep.lua: visits swarms, at most `budget` members per call: removes members without a timeout and those who may not
-- stay, and repairs what does not agree. Expiry events and due lists may be lost; the sweep does not depend on either.
-- ARGV[1..7] as in removal.lua   ARGV[8] delete empty torrents after (s)   ARGV[9] budget (members)
-- ARGV[10]  where to go on in the first torrent ('' at its start)
-- ARGV[11]  prefixes of denied clients (hex, between spaces)   ARGV[12..] torrent ids
-- Answer    { torrents done, where to go on in the next, peers removed, repairs, torrents deleted, members seen,
--   unlisted, torrents that failed, peers }; unlisted: what note_unlisted() finds. Nothing is listed here: memory may
--   be full; peers: sums over swarms: seeders, leechers, slots in s4, l4, s6 and l6, seeders and leechers that joined
--   over UDP, slots in sw and lw. A large swarm is in the sums of the call that visits the last of its members
local P, call, now, memory = KEYS[1], redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
local forget_after, budget = tonumber(ARGV[8]), tonumber(ARGV[9])
--@ include lib/removal.lua
--@ include lib/refused_torrents.lua
--@ include lib/barred_users.lua
--@ include lib/denied_clients.lua
--@ include swarms/recount.lua
--@ include lib/unlisted.lua
--@ include lib/torrent_deletion.lua

-- Who may not stay in a swarm: peers of a refused torrent, of a denied client, and of a disabled or deleted user.
local is_client_denied = new_client_check(ARGV[11])

-- The processes that had connections (`ws:processes`), and when each reported last. One that was killed says no goodbye
-- for its connections; its peers that have no other endpoint time out within minutes.
local DEAD_SECONDS, processes = 60, nil

local function is_dead(process)
  if not processes then
    processes = {}
    local beats = redis.pcall('HGETALL', P .. 'ws:processes')
    for i = 1, #beats, 2 do
      processes[beats[i]] = tonumber(beats[i + 1])
      if now - (tonumber(beats[i + 1]) or 0) > 3600 then call('HDEL', P .. 'ws:processes', beats[i]) end
    end
  end
  local last = processes[process]
  return next(processes) and now >= outage_until + grace and (not last or now - last > DEAD_SECONDS)
end

-- Takes the WebSocket of a dead process from a peer that has another endpoint.
local function lose_dead_socket(tid, pidx, endpoints)
  local v4, v6, socket = split_families(endpoints)
  if socket == '' or v4 .. v6 == '' then return end
  if not is_dead(string.format('%.0f', struct.unpack('>I4', string.sub(socket, 17, 20)))) then return end
  local key, t = P .. 'p:' .. tid .. ':' .. pidx, find_torrent(tid)
  local v = call('HMGET', key, 'left', 'paused', 'nw')
  if v[3] then remove_slot(t, kind_of(v[1], v[2]), 'w', count_of[v[3]], to_raw(pidx)) end
  remove_address(t, socket, to_raw(pidx))
  call('HSET', key, 'endpoints', v4 .. v6)
  call('HDEL', key, 'nw')
end

local function is_barred(t, pidx)
  local p = call('HMGET', P .. 'p:' .. t.tid .. ':' .. pidx, 'user_id', 'peer_id', 'endpoints')
  if #(p[3] or '') > sockets.BYTES then lose_dead_socket(t.tid, pidx, p[3]) end
  if p[1] and is_user_barred(p[1]) then return true end
  return is_client_denied and is_client_denied(p[2] and to_hex(p[2]) or pidx)
end

local removed, repairs, deleted, seen, failed = 0, 0, 0, 0, 0
local unlisted, peers = {}, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

local function sum_peers(t, counts)
  local numbers = { t.seeders, t.leechers, t.s4, t.l4, t.s6, t.l6, counts.udp_s, counts.udp_l, t.sw, t.lw }
  for i, number in ipairs(numbers) do peers[i] = peers[i] + number end
end

-- Returns that the visit ends.
local function repair(t)
  rebuild(t)
  repairs = repairs + 1
  return ''
end

-- How long an empty torrent is kept: for an hour if only one address ever joined it, for ten minutes if only WebSockets
-- did. Those may be rooms of an application.
local function kept_seconds(joiners)
  if not joiners or joiners == 'D' then return forget_after end
  return math.min(forget_after, string.find(joiners, 'W', 1, true) and 600 or 3600)
end

-- Deletes a torrent some time after its last peer if it registered itself or the site deleted it. A disabled or pending
-- torrent stays, as it would come back enabled. One seen in many places takes several calls; returns where to go on.
local function visit_empty(t)
  if not check_counts(t) or call('EXISTS', P .. 'addresses:' .. t.ih) == 1 then return repair(t) end
  local v = call('HMGET', t.key, 'auto', 'enabled', 'empty_since', 'joiners')
  local stays = v[1] ~= '1' or v[2] == '0' or v[2] == 'pending'
  if stays and call('EXISTS', P .. 'info_hash:' .. t.ih) == 1 then return '' end
  local since = tonumber(v[3] or '')
  if not since then
    call('HSET', t.key, 'empty_since', now)
  elseif now - since >= kept_seconds(v[4]) then
    if not delete_torrent(t) then return 'forget:0' end
    deleted = deleted + 1
  end
  return ''
end

-- Removes those of the members who have timed out, or may not stay. Returns the torrent as it is then.
local function remove_members(t, tid, members)
  seen = seen + #members
  local timeouts = {}
  for i, pidx in ipairs(members) do timeouts[i] = P .. 'ptimeout:' .. tid .. ':' .. pidx end
  local alive, refused = #members > 0 and call('MGET', unpack(timeouts)), is_refused(t.ih)
  for i, pidx in ipairs(members) do
    if not alive[i] then
      removed = removed + remove_timed_out(tid, nil, pidx)
    elseif refused or is_barred(t, pidx) then
      local p = read_peer(tid, pidx) -- the user did not leave, so this makes no hit-and-run
      if p[1] == '1' and remove_peer(tid, nil, pidx, p, 'removed', false) == 1 then
        call('UNLINK', P .. 'ptimeout:' .. tid .. ':' .. pidx)
        removed = removed + 1
      end
    end
  end
  save_removals()
  return (load_torrent(t.ih))
end

-- From now on, how many peers come, leave or change is counted (note_moves() of torrent.lua).
local function count_moves(tid)
  call('SET', P .. 'sweeping', tid .. ' 0', 'EX', 3600)
end

-- By how much counts may be off that calls since count_moves() made.
local function max_off(tid)
  local of, moves = string.match(call('GET', P .. 'sweeping') or '', '^(%d+) (%d+)$')
  return of == tid and 3 * tonumber(moves) or math.huge
end

-- Visits a larger swarm in slices: its members, then the slots of its arrays, then its addresses. Each slice is
-- consistent in itself. The members seen are counted on the way: `position` holds the cursor, seeders, leechers, paused
-- members, and seeders and leechers that joined over UDP. If the sum differs from the counts by more than the changes
-- in between explain, the whole swarm is counted at once.
local function visit_members(t, tid, position)
  local cursor, s, l, paused, udp_s, udp_l = string.match(position, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
  if not cursor then count_moves(tid) end
  local counts, left = { s = tonumber(s) or 0, l = tonumber(l) or 0, paused = tonumber(paused) or 0,
    udp_s = tonumber(udp_s) or 0, udp_l = tonumber(udp_l) or 0 }, {}
  local page = call('SSCAN', P .. 'tpeers:' .. t.ih, cursor or '0', 'COUNT', budget)
  t = remove_members(t, tid, page[2])
  for _, pidx in ipairs(page[2]) do
    if call('SISMEMBER', P .. 'tpeers:' .. t.ih, pidx) == 1 then left[#left + 1] = pidx end
  end
  local is_right = count_slice(t, left, counts)
  if is_right and page[1] ~= '0' then
    return string.format('m:%s,%.0f,%.0f,%.0f,%.0f,%.0f', page[1], counts.s, counts.l, counts.paused, counts.udp_s,
      counts.udp_l)
  end
  if is_right then
    local off = math.abs(counts.s - t.seeders) + math.abs(counts.l - t.leechers)
      + math.abs(counts.paused - paused_count(t))
    is_right = off <= max_off(tid) or check_swarm(t)
  end
  if not is_right then repair(t) end
  sum_peers(t, counts)
  return is_right and 's4:0' or ''
end

local function visit_slots(t, name, from)
  local till = math.min(t[name], from + budget)
  seen = seen + math.max(0, till - from)
  if from < till and not check_slots(t, name, from, till) then return repair(t) end
  if till < t[name] then return name .. ':' .. till end
  for i, array in ipairs(ARRAYS) do
    if array == name and ARRAYS[i + 1] then return ARRAYS[i + 1] .. ':0' end
  end
  return check_counts(t) and 'a:' or repair(t)
end

-- All addresses have been added by now. Crowded networks are counted on the way, as members are.
local function visit_addresses(t, position)
  local cursor, crowded = string.match(position, '^(%d+),(%d+)$')
  if not cursor then count_moves(t.tid) end
  crowded = tonumber(crowded) or 0
  local key = P .. 'addresses:' .. t.ih
  local networks = math.ceil(budget * call('HLEN', key) / (t.seeders + t.leechers)) -- they hold about `budget` entries
  local page = call('HSCAN', key, cursor or '0', 'COUNT', math.max(1, networks))
  seen = seen + #page[2] / 2
  local more = check_addresses(t, page[2])
  if not more then return repair(t) end
  crowded = crowded + more
  if page[1] ~= '0' then return string.format('a:%s,%.0f', page[1], crowded) end
  if math.abs(crowded - t.crowded) > max_off(t.tid) then -- changes in between explain a smaller difference
    repairs = repairs + 1
    t.crowded = crowded
    save_torrent(t)
  end
  call('DEL', P .. 'sweeping')
  return ''
end

local function visit(tid, position)
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  local t = ih and load_torrent(ih)
  if not t or t.tid ~= tid then
    -- An id that is not ranked was deleted since the caller read it: nothing is wrong then.
    if remove_from_rankings(tid) > 0 then repairs = repairs + 1 end
    return ''
  end
  if position == '' then pcall(note_unlisted, t, unlisted) end
  local members = call('SCARD', P .. 'tpeers:' .. ih)
  local part, rest = string.match(position, '^(%w+):(.*)$')
  if members == 0 then return visit_empty(t) end
  if position == '' then redis.pcall('ZREM', P .. 'i:empty', tid) end
  local is_summed = part and part ~= 'm' and part ~= 'forget'
  if members <= budget then -- the swarm is counted exactly
    t = remove_members(t, tid, call('SMEMBERS', P .. 'tpeers:' .. ih))
    local is_right, counts = check_swarm(t)
    if not is_right then repair(t) end
    if not is_summed then sum_peers(t, counts) end
    return ''
  end
  if not is_summed then return visit_members(t, tid, rest or '') end
  if part == 'a' then return visit_addresses(t, rest) end
  return visit_slots(t, part, tonumber(rest))
end

local done, position = 0, ARGV[10]
for i = 12, #ARGV do
  local ok, go_on = pcall(visit, ARGV[i], position)
  save_removals()
  if not ok then failed = failed + 1 end
  position = ok and go_on or ''
  if position ~= '' then break end
  done = done + 1
  if seen + done >= budget then break end
end
return { done, position, removed, repairs, deleted, seen, unlisted, failed, peers }
