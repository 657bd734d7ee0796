-- user_fields.lua: writes the fields of a user that a program sets.
--
-- A user is a table as fields.py packs it, as JSON: id or '', passkey or '', `random`: the passkey for a user who has
-- none, `folded`: the folded name if a name is among the fields. Then the fields with their values, '' to delete one:
-- rights (of `user:<passkey>`), profile and totals (of `u:<uid>`); and `adds`, what to add to totals.
--@ include lib/names.lua
--@ include lib/index_entries.lua
--@ include lib/user_ids.lua
--@ include lib/removed_users.lua

-- What is stored of a user before fields are written: passkey, listed name, uploaded, downloaded. Fails, before the
-- first write, when the key is of a wrong type.
local function stored_user(uid)
  return call('HMGET', P .. 'u:' .. uid, 'passkey', 'listed', 'uploaded', 'downloaded')
end

local function set_fields(key, fields)
  local set, cleared, n = {}, {}, 0
  for name, value in pairs(fields) do
    if value == '' then
      cleared[#cleared + 1] = name
    else
      set[n + 1], set[n + 2], n = name, value, n + 2
    end
  end
  if n > 0 then call('HSET', key, unpack(set)) end
  if #cleared > 0 then call('HDEL', key, unpack(cleared)) end
end

-- Also notes the rights for write_index_entries(), and has the peers of a user who may not announce removed; `uid` is
-- nil or false if the passkey is not listed as that of a user.
local function write_rights(passkey, rights, uid)
  set_fields(P .. 'user:' .. passkey, rights)
  note_copy(passkey)
  if not uid then return end
  if rights.enabled then note_entry('user_disabled', uid, rights.enabled == '0' and uid) end
  if rights.can_leech then note_entry('user_blocked', uid, rights.can_leech == '0' and uid) end
  note_if_refused(uid, rights.enabled, rights.group)
  if rights.visible then hide_user(uid, rights.visible == '0') end
end

-- True for a row that was not applied before. `once`: the key of a request that may be repeated, '' for none.
local ONCE_SECONDS = 604800
local function is_first(once, row)
  if once == '' then return true end
  local key = P .. 'once:' .. once
  local first = call('HSETNX', key, row, '1') == 1
  call('EXPIRE', key, ONCE_SECONDS, 'NX')
  return first
end

-- Writes the fields of `u:<uid>`, lists the name, and notes the totals for write_index_entries(). `before` is what
-- stored_user() has read. Totals of a new user are the part that is in no shard; of another, sum_users.lua finds it.
local function write_account(uid, user, before, with_totals, is_new)
  local fields, totals = user.profile, with_totals and user.totals or {}
  for name, value in pairs(totals) do
    fields[name] = value
    if is_main then fields['base_' .. name] = is_new and value or '' end
  end
  if next(user.adds) then
    totals = { uploaded = totals.uploaded, downloaded = totals.downloaded }
    for name, more in pairs(user.adds) do -- with several shards to the base, which is in no shard
      local v = call('HMGET', P .. 'u:' .. uid, name, 'base_' .. name)
      local held = stored_number(v[1]) or 0
      local sum = math.max(0, math.min(9007199254740991, held + tonumber(more)))
      totals[name] = string.format('%.0f', sum)
      fields[name] = totals[name]
      if is_main and v[2] then fields['base_' .. name] = string.format('%.0f', (tonumber(v[2]) or 0) + sum - held) end
    end
  end
  fields.listed = user.folded
  set_fields(P .. 'u:' .. uid, fields)
  if user.folded then index_name(P .. 'i:user_name', uid, before[2], user.folded) end
  note_rank(uid, totals.uploaded or before[3], totals.downloaded or before[4])
end
