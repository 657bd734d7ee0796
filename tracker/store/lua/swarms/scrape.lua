#!lua flags=no-writes
-- scrape.lua: the figures of the torrents that a batch of scrapes asks for.
-- KEYS[1]   the prefix
-- ARGV[1]   '1': a passkey is required (private mode)
-- ARGV[2..] for each scrape its passkey (or ''), how many torrents it asks for, and their info hashes (40 hex digits each)
-- Answer    for each scrape a list of four numbers for each of its torrents (seeders, leechers, completions, leechers that
--   download), zeros for those unknown, denied, disabled, or of whose keys somebody has made something else; or the number
--   0 where the passkey is nobody's, 1 where it is a disabled user's
local P, private = KEYS[1], ARGV[1] == '1'

local function refusal(passkey)
  if not private then return end
  local user = redis.pcall('HMGET', P .. 'user:' .. passkey, 'user_id', 'enabled')
  if passkey == '' or user.err or not user[1] then return 0 end
  if user[2] == '0' then return 1 end
end

local function figure(digits)
  return tonumber(digits and string.match(digits, '^%d+$') or '') or 0
end

local function add_figures(to, ih)
  local registered = redis.pcall('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local v = redis.pcall('HMGET', P .. 't:' .. ih, 'seeders', 'leechers', 'snatches', 'paused', 'enabled')
  local n = #to
  if v.err or not registered[1] or registered[2] or v[5] == '0' then
    to[n + 1], to[n + 2], to[n + 3], to[n + 4] = 0, 0, 0, 0
    return
  end
  local leechers = figure(v[2])
  to[n + 1], to[n + 2], to[n + 3] = figure(v[1]), leechers, figure(v[3])
  to[n + 4] = math.max(0, leechers - figure(v[4]))
end

local answers, i = {}, 2
while i <= #ARGV do
  local last = i + 1 + tonumber(ARGV[i + 1])
  local refused, figures = refusal(ARGV[i]), {}
  for at = i + 2, refused and 0 or last do add_figures(figures, ARGV[at]) end
  answers[#answers + 1] = refused or figures
  i = last + 1
end
return answers
