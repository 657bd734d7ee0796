#!lua
-- reindex.lua: ranks torrents that are in no ranking: a site registered them, and no peer has joined them yet.
-- ARGV[1]   now (epoch s)   ARGV[2..] info hashes (40 hex digits)
-- Answer    { info hashes that were ranked, unlisted torrents as note_unlisted() finds them }
local P, call, now = KEYS[1], redis.call, tonumber(ARGV[1])
--@ include lib/registration.lua
--@ include lib/unlisted.lua

local ranked, unlisted = {}, {}

-- True when an empty torrent is not bound to its registered id.
local function is_unbound(t, registered)
  return registered and #registered <= 15 and string.match(registered, '^[1-9]%d*$')
    and t.seeders + t.leechers == 0 and not is_id_taken(t, registered)
    and (t.tid ~= registered or call('GET', P .. 'torrent_id:' .. registered) ~= t.ih
      or not call('ZSCORE', P .. 'i:seeders', registered))
end

local function visit(ih)
  check_rankings()
  local t, registered = load_torrent(ih), call('GET', P .. 'info_hash:' .. ih)
  if is_unbound(t, registered) then
    t.tid = t.tid ~= registered and t.tid or nil -- nil: bind_id() writes the id again
    bind_id(t, registered)
    add_to_scoring({ [registered] = true }, true)
    ranked[#ranked + 1] = ih
  end
  if not t.tid or call('GET', P .. 'torrent_id:' .. t.tid) ~= ih then return end
  if not call('ZSCORE', P .. 'i:seeders', t.tid) then -- a swarm with peers, which keep the id that they joined with
    write_rankings(t, t.tid)
    ranked[#ranked + 1] = ih
  end
  note_unlisted(t, unlisted)
end

for i = 2, #ARGV do pcall(visit, ARGV[i]) end -- a key of a wrong type: leave this torrent out
return { ranked, unlisted }
