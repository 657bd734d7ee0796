#!lua
-- set_rule.lua: sets or removes the rule of one name: of a user, of a torrent or for all users. In the fields that it
-- changes, it also removes rules that have ended, text of another form, and a 1 without a name.
-- ARGV[1]   now (epoch s)   ARGV[2] the name, '' for rules without one
-- ARGV[3]   the rule for upload as stored, '' for none   ARGV[4] the same for download
-- ARGV[5]   passkey of the user, or ''   ARGV[6] info hash of the torrent (40 hex digits), or ''; both '': all users
-- Answer    { 1, the user's id or '' }. The first is 0 when there was no rule to remove, and -1 when there are as many
--   as allowed. false when there is no such user, or the torrent is not registered
local P, call = KEYS[1], redis.call
--@ include lib/rules.lua
--@ include lib/user_ids.lua
--@ include lib/edits.lua
local now, wanted, passkey, info_hash = tonumber(ARGV[1]), ARGV[2], ARGV[5], ARGV[6]

-- The text with the rule in place of the one of this name, and how many rules it has; nil when none is to be changed.
local function changed(text, rule)
  local kept, found = {}, false
  for each in string.gmatch(#text <= MAX_RULES_BYTES and text or '', '[^,]+') do
    local value, ends, name = parse_rule(each)
    if value and name == wanted then
      if rule ~= '' and not found then kept[#kept + 1] = rule end
      found = true
    elseif value and not (ends and ends <= now) and not (value == 1 and name == '') then
      kept[#kept + 1] = string.match(each, '^ *(.-) *$')
    end
  end
  if not found and rule == '' then return end
  if not found then kept[#kept + 1] = rule end
  return table.concat(kept, ', '), #kept
end

local uid = passkey ~= '' and (call('HGET', P .. 'user:' .. passkey, 'user_id') or '')
if uid == '' or info_hash ~= '' and call('EXISTS', P .. 'info_hash:' .. info_hash) == 0 then return false end
local key = uid and P .. 'user:' .. passkey or info_hash ~= '' and P .. 't:' .. info_hash
local up, down = 'upload_multiplier', 'download_multiplier'
if not key then
  up, down = P .. 'upload_multiplier', P .. 'download_multiplier'
elseif not uid then
  up, down = 'multi_up', 'multi_dn'
end
local texts, writes = key and call('HMGET', key, up, down) or call('MGET', up, down), {}
for i, field in ipairs({ up, down }) do
  local text, number = changed(texts[i] or '', ARGV[2 + i])
  if text and ARGV[2 + i] ~= '' and (number > MAX_RULES or #text > MAX_RULES_BYTES) then return { -1, uid or '' } end
  if text and not key then
    writes[#writes + 1] = { 'SET', field, text }
  elseif text then
    writes[#writes + 1] = text == '' and { 'HDEL', key, field } or { 'HSET', key, field, text }
  end
end
for _, write in ipairs(writes) do call(unpack(write)) end
if uid and writes[1] then note_copy(passkey) end
if key and writes[1] then record_edit(uid or '', info_hash) end
return { writes[1] and 1 or 0, uid or '' }
