#!lua flags=no-writes
-- scrape.lua: the counts of the torrents in a batch of scrapes.
-- ARGV[1]   '1': a passkey is required
-- ARGV[2..] for each scrape its passkey (or ''), its number of torrents, and their info hashes (40 hex digits each)
-- Answer    for each scrape a list of four numbers for each of its torrents: seeders, leechers, completions, leechers
--   that download. Zeros for a torrent that is unknown, denied, disabled or pending, or whose keys are of a wrong type.
--   Instead of the list the number 0 for an unknown passkey, or a text for a disabled user: the operator's reason or ''
local P, required = KEYS[1], ARGV[1] == '1'

local function refusal_of(passkey)
  if not required then return end
  local user = redis.pcall('HMGET', P .. 'user:' .. passkey, 'user_id', 'enabled', 'reason')
  if passkey == '' or user.err or not user[1] or user[1] == '' then return 0 end
  if user[2] == '0' then return user[3] or '' end
end

local function count_of(digits)
  return tonumber(digits and string.match(digits, '^%d+$') or '') or 0
end

local function add_counts(to, ih)
  local registered = redis.pcall('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local v = redis.pcall('HMGET', P .. 't:' .. ih, 'seeders', 'leechers', 'snatches', 'paused', 'enabled')
  local n = #to
  if v.err or not registered[1] or registered[2] or v[5] == '0' or v[5] == 'pending' then
    to[n + 1], to[n + 2], to[n + 3], to[n + 4] = 0, 0, 0, 0
    return
  end
  local leechers = count_of(v[2])
  to[n + 1], to[n + 2], to[n + 3] = count_of(v[1]), leechers, count_of(v[3])
  to[n + 4] = math.max(0, leechers - count_of(v[4]))
end

local answers, i = {}, 2
while i <= #ARGV do
  local last = i + 1 + tonumber(ARGV[i + 1])
  local refusal, counts = refusal_of(ARGV[i]), {}
  for at = i + 2, refusal and 0 or last do add_counts(counts, ARGV[at]) end
  answers[#answers + 1] = refusal or counts
  i = last + 1
end
return answers
