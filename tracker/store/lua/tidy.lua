#!lua flags=allow-oom
-- tidy.lua: which keys, or entries of lists, do not belong to anything any more; deletes them when told to. Each is looked
-- at and deleted in one step, so that it is safe beside a tracker at work.
-- KEYS[1]   the prefix
-- ARGV[1]   what to check: a name in `belongs` or, of entries, in `fits`; '' for the type alone   ARGV[2] '1' to delete
-- ARGV[3]   the type its keys have
-- ARGV[4..] pairs of a key, without the prefix, and an entry of it ('' when it is about the key)
-- Answer    { numbers of the pairs that do not belong, of those whose keys are of another type }
local P, now, memory = KEYS[1], 0, 0
--@ include swarm.lua
--@ include naming.lua
--@ include users.lua

local HASH = string.rep('[0-9a-f]', 40)

local function exists(name)
  return call('EXISTS', P .. name) == 1
end

local function is_torrent(ih)
  return call('EXISTS', P .. 't:' .. ih) == 1
end

-- Markers have an end; one without would stay for ever.
local function ends(name)
  return call('TTL', P .. name) ~= -1
end

local function in_ranking(tid)
  return call('ZSCORE', P .. 'i:seeders', tid)
end

-- The info hash that goes by an id, when both say so.
local function torrent_of(tid)
  local ih = call('GET', P .. 'torrent_id:' .. tid)
  return ih and string.match(ih, '^' .. HASH .. '$') and call('HGET', P .. 't:' .. ih, 'tid') == tid and ih
end

local function is_active(tid, pidx)
  return call('HGET', P .. 'p:' .. tid .. ':' .. pidx, 'active') == '1'
end

local belongs, fits = {}, {} -- of keys by their name; of entries by the name of their key and the entry

-- Torrents and their swarms. What is in a ranking is the sweep's to forget; what a site wrote is a torrent it may be about to
-- register, or one that it never wants to.

function belongs.torrent(name)
  local ih = string.sub(name, 3)
  local v = call('HMGET', P .. name, 'tid', 'enabled', 'name', 'private', 'reason', 'multi_up', 'multi_dn')
  local written = v[3] or v[4] or v[5] or v[6] or v[7]
  return exists('info_hash:' .. ih) or v[2] == '0' or written and not v[1] or call('SCARD', P .. 'tpeers:' .. ih) > 0
    or v[1] and torrent_of(v[1]) == ih and in_ranking(v[1])
end

function belongs.torrent_id(name)
  local tid = string.match(name, '(%d+)$')
  local ih = call('GET', P .. name)
  return torrent_of(tid) or string.match(ih, '^' .. HASH .. '$') and call('GET', P .. 'info_hash:' .. ih) == tid
end

function belongs.history(name)
  return exists('torrent_id:' .. string.match(name, '(%d+)$'))
end

function belongs.members(name)
  return is_torrent(string.sub(name, -40))
end

function belongs.array(name)
  local ih, array = string.match(name, '^swarm:(%w+):(%w%d)')
  return load(ih)[array] > 0
end

function belongs.peer(name)
  local tid, pidx = string.match(name, '^p:(%d+):(%w+)$')
  local active = call('HGET', P .. name, 'active')
  if active == '0' then return ends(name) end
  local ih = active == '1' and call('GET', P .. 'torrent_id:' .. tid)
  return ih and call('SISMEMBER', P .. 'tpeers:' .. ih, pidx) == 1
end

function belongs.timeout(name)
  return is_active(string.match(name, '^ptimeout:(%d+):(%w+)$'))
end

function fits.peer_torrent(name, tid)
  return is_active(tid, string.sub(name, 3, 42))
end

-- Lists of torrents

function fits.ranked(_, tid)
  return torrent_of(tid)
end

function fits.named(_, entry)
  local listed = call('HGET', P .. 't:' .. string.sub(entry, -40), 'listed')
  return listed and name_entry(listed, string.sub(entry, -40)) == entry
end

function fits.denied(_, ih)
  return exists('deny:' .. ih)
end

-- Users

function fits.passkey(_, passkey)
  return exists('user:' .. passkey)
end

function belongs.account(name)
  return exists('torrent_id:' .. string.match(name, '(%d+)$'))
end

function fits.of_user(_, tid)
  return exists('torrent_id:' .. tid)
end

function fits.debtor(_, uid)
  return call('SCARD', P .. 'u:' .. uid .. ':hnr') > 0
end

function fits.client(_, prefix)
  return exists('whitelist:' .. prefix)
end

-- Figures

belongs.marker = ends

-- Of a torrent, unless it is of a place of the world; with a month or an address it also ends.
function belongs.unique(name)
  local ih = string.match(name, 'torrents%.(' .. HASH .. ')')
  if ih and not is_torrent(ih) then return false end
  return string.sub(name, -6) == '.users' or string.sub(name, 1, 2) == 'i:' or ends(name)
end

function fits.on_board(name, member)
  return string.sub(name, 1, 18) ~= 'i:unique:torrents:' or is_torrent(member)
end

function belongs.count(name)
  return call('ZSCORE', P .. 'known:', string.sub(name, 7))
end

function belongs.dist(name)
  return call('ZSCORE', P .. 'known:dist', string.sub(name, 6))
end

function fits.known(name, entry)
  return exists((name == 'known:' and 'count:' or 'dist:') .. entry)
end

function belongs.minute(name)
  return call('ZSCORE', P .. 'outbox', string.sub(name, 8))
end

function fits.waiting(_, minute)
  return exists('outbox:' .. minute)
end

-- Leases and jobs

function fits.token(name, id)
  return call('ZSCORE', P .. string.sub(name, 1, -8), id)
end

function belongs.job(name)
  local v = call('HMGET', P .. name, 'queue', 'status')
  return v[1] and v[2] and call('ZSCORE', P .. 'q:' .. v[1] .. ':' .. v[2], string.sub(name, 5))
end

function fits.queued(_, id)
  return exists('job:' .. id)
end

function fits.fingerprint(name, fingerprint)
  local id = call('HGET', P .. name, fingerprint)
  return id and exists('job:' .. id)
end

-- Beside the key itself: what else is there of it.
local also = {}

function also.torrent(name)
  list_name(string.sub(name, 3), '')
end

function also.peer(name)
  local tid, pidx = string.match(name, '^p:(%d+):(%w+)$')
  call('DEL', P .. 'ptimeout:' .. tid .. ':' .. pidx)
  redis.pcall('SREM', P .. 'p:' .. pidx .. ':torrents', tid)
end

-- It may have gone since it was read.
local function is_entry(name, entry, kind)
  if kind == 'set' then return call('SISMEMBER', P .. name, entry) == 1 end
  if kind == 'hash' then return call('HEXISTS', P .. name, entry) == 1 end
  return call('ZSCORE', P .. name, entry)
end

local function remove_entry(name, entry, kind)
  call(kind == 'set' and 'SREM' or kind == 'hash' and 'HDEL' or 'ZREM', P .. name, entry)
  local uid = string.match(name, '^u:(%d+):hnr$')
  if uid then rank_debt(uid) end
end

local remove, expected = ARGV[2] == '1', ARGV[3]
local orphans, wrong = {}, {}

local function look(number, name, entry)
  local kind, check = call('TYPE', P .. name).ok, belongs[ARGV[1]]
  if entry ~= '' then check = fits[ARGV[1]] end
  if kind == 'none' then return end
  if kind ~= expected then
    wrong[#wrong + 1] = number
    if remove then call('UNLINK', P .. name) end
  elseif check and not check(name, entry) and (entry == '' or is_entry(name, entry, kind)) then
    orphans[#orphans + 1] = number
    if not remove then return end
    if entry ~= '' then return remove_entry(name, entry, kind) end
    if also[ARGV[1]] then also[ARGV[1]](name) end
    call('UNLINK', P .. name)
  end
end

-- What cannot be looked at, because something it refers to is of the wrong type, is left for the next time.
for i = 4, #ARGV, 2 do pcall(look, (i - 4) / 2, ARGV[i], ARGV[i + 1]) end
return { orphans, wrong }
