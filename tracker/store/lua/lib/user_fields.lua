-- user_fields.lua: the fields of a user that a program sets: reads them from the arguments, and writes them. After `P`,
-- `call` and names.lua.

-- The arguments of one user, from ARGV[first] on: user id or '', passkey or '', passkey for a user who has none, '1' if
-- a name is among the fields, that name folded. Then three lists, each with its length before it, of pairs of field and
-- value: rights (fields of `user:<passkey>`), profile and totals (fields of `u:<uid>`).
-- Returns the user, and the index of the argument after it.
local function read_user(first)
  local lists, at = {}, first + 5
  for i = 1, 3 do
    local n = tonumber(ARGV[at])
    lists[i] = n > 0 and { unpack(ARGV, at + 1, at + n) } or {}
    at = at + 1 + n
  end
  return {
    id = ARGV[first], passkey = ARGV[first + 1], random = ARGV[first + 2],
    named = ARGV[first + 3] == '1', folded = ARGV[first + 4],
    rights = lists[1], profile = lists[2], totals = lists[3],
  }, at
end

-- A field with an empty value is deleted.
local function set_fields(key, fields)
  for i = 1, #fields, 2 do
    if fields[i + 1] == '' then
      call('HDEL', key, fields[i])
    else
      call('HSET', key, fields[i], fields[i + 1])
    end
  end
end

local function write_user(uid, passkey, user, with_totals)
  set_fields(P .. 'user:' .. passkey, user.rights)
  set_fields(P .. 'u:' .. uid, user.profile)
  if with_totals then set_fields(P .. 'u:' .. uid, user.totals) end
  if user.named then list_name(P .. 'u:' .. uid, P .. 'i:user_name', uid, user.folded) end
end
