-- removed_users.lua: has the peers of a refused or deleted user removed.

--@ include lib/removing.lua
--@ include lib/groups.lua

-- A user who is active on no torrent has no peers.
local function note_removed_user(uid)
  if call('EXISTS', P .. 'u:' .. uid .. ':active') == 1 then note_removing('user:' .. uid) end
end

-- The same for one who is disabled, or whose group may not announce.
local function note_if_refused(uid, enabled, group_id)
  local group = enabled ~= '0' and find_group(group_id)
  if enabled == '0' or group and group.may_announce == '0' then note_removed_user(uid) end
end
