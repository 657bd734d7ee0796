#!lua
-- adopt.lua: finds users and allowed clients that a site wrote and that are not listed, and lists them. It also finds
-- users whose name may differ from the listed one. It walks through the keys of the store, some per call.
-- ARGV[1]   cursor: '0' at the start   ARGV[2] keys to look at, approximately   ARGV[3] the prefix as a pattern
-- Answer    { the next cursor, '0' at the end; how many keys the store has; ids of users adopted; unusable ids: not a
--   positive number, or another user's; prefixes of clients listed; user id, name and listed name of
--   each user whose name may have to be listed: only Python can compare them, because it folds names }
local P, call = KEYS[1], redis.call
--@ include lib/user_ids.lua
--@ include lib/names.lua

local adopted, unusable, clients, names = {}, {}, {}, {}

local function note_name(uid)
  local v, n = call('HMGET', P .. 'u:' .. uid, 'name', 'listed'), #names
  local name, listed = string.sub(v[1] or '', 1, MAX_NAME_BYTES), v[2] or ''
  if string.lower(name) ~= listed then names[n + 1], names[n + 2], names[n + 3] = uid, name, listed end
end

-- A passkey that does not fit into an announce URL cannot be used.
local function visit_user(passkey)
  if #passkey < 16 or #passkey > 64 or string.find(passkey, '[^%w_-]') then return end
  local uid = call('HGET', P .. 'user:' .. passkey, 'user_id')
  if not uid or uid == '' then return end
  if not (is_user_id(uid) and is_listed(uid, passkey)) then
    local refusal = adopt(uid, passkey)
    note_copy(passkey)
    local into = refusal and unusable or adopted
    into[#into + 1] = uid
    if refusal then return end
  end
  note_name(uid)
end

-- The pattern matches both `user:` and `whitelist:`, so one walk finds both.
local page = call('SCAN', ARGV[1], 'MATCH', ARGV[3] .. '[uw][sh][ei][rt]*', 'COUNT', ARGV[2])
for _, key in ipairs(page[2]) do
  local name = string.sub(key, #P + 1)
  local passkey, prefix = string.match(name, '^user:(.+)$'), string.match(name, '^whitelist:(.+)$')
  if passkey then
    pcall(visit_user, passkey)
  elseif prefix and #prefix <= 20 and redis.pcall('SADD', P .. 'whitelist', prefix) == 1 then
    clients[#clients + 1] = prefix
  end
end
return { page[1], call('DBSIZE'), adopted, unusable, clients, names }
