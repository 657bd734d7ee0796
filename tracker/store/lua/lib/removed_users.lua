-- removed_users.lua: has the peers of a disabled or deleted user removed. After `P` and `call`.

--@ include lib/removing.lua

-- A user who is active on no torrent has no peers.
local function note_removed_user(uid)
  if call('EXISTS', P .. 'u:' .. uid .. ':active') == 1 then note_removing('user:' .. uid) end
end
