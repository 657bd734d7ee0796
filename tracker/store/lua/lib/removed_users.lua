-- removed_users.lua: has the peers of a refused or deleted user removed, and those of a hidden user in no reply.
--
-- `removing` holds whose peers are being removed: while they are, announces do not return them. It has entries between
-- spaces: `user:<uid>`, and `client:<peer-id prefix in hex>`. A tracker removes the peers within seconds, and then the
-- entry. When many users are disabled together, `user:*` stands for the others: announces look up each peer's user.
--@ include lib/groups.lua
local MAX_REMOVING_USERS = 100

-- A key of a wrong type is replaced.
local function note_removing(entry)
  local entries = redis.pcall('GET', P .. 'removing')
  if type(entries) ~= 'string' then entries = ' ' end
  local _, users = string.gsub(entries, ' user:', '')
  if users >= MAX_REMOVING_USERS and string.sub(entry, 1, 5) == 'user:' then entry = 'user:*' end
  if string.find(entries, ' ' .. entry .. ' ', 1, true) then return end
  call('SET', P .. 'removing', entries .. entry .. ' ')
end

-- A user who is active on no torrent has no peers.
local function note_removed_user(uid)
  if call('EXISTS', P .. 'u:' .. uid .. ':active') == 1 then note_removing('user:' .. uid) end
end

-- The same for one who is disabled, or whose group may not announce.
local function note_if_refused(uid, enabled, group_id)
  local group = enabled ~= '0' and find_group(group_id)
  if enabled == '0' or group and group.may_announce == '0' then note_removed_user(uid) end
end

-- Hidden users stand as ` 7 12 ` in `hidden` of `t:groups`: announces read them with the groups.
local function hide_user(uid, hides)
  local text = redis.pcall('GET', P .. 'groups')
  local ok, groups = pcall(cjson.decode, type(text) == 'string' and text ~= '' and text or '{}')
  if not ok or type(groups) ~= 'table' then groups = {} end
  local list = type(groups.hidden) == 'string' and groups.hidden or ' '
  local from, till = string.find(list, ' ' .. uid .. ' ', 1, true)
  if hides == (from ~= nil) then return end
  if hides then list = list .. uid .. ' ' else list = string.sub(list, 1, from) .. string.sub(list, till + 1) end
  groups.hidden = list ~= ' ' and list or nil
  call('SET', P .. 'groups', next(groups) and cjson.encode(groups) or '')
end
