-- hidden_users.lua: the users whose peers are in no reply, as ` 7 12 ` in `hidden` of `t:groups`: announces read them
-- with the groups.

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
