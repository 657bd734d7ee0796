#!lua
-- save_group.lua: adds, changes or deletes a group of users.
-- ARGV[1]   its id   ARGV[2] its fields as JSON, '' to clear one; '' to delete the group
-- ARGV[3]   '1': fields that are not given are cleared   ARGV[4] max groups
-- Answer    2 when the group is new; 1; 0 when there is no such group to delete; -1 when there are as many as allowed;
--   and 1 if its users may not announce any more, else 0
local P, call, group_id = KEYS[1], redis.call, ARGV[1]
local ok, groups = pcall(cjson.decode, call('GET', P .. 'groups') or '{}')
if not ok or type(groups) ~= 'table' then groups = {} end
local before = type(groups[group_id]) == 'table' and groups[group_id] or nil
local was_refused = before and before.may_announce == '0'
if ARGV[2] == '' then
  if not before then return { 0, 0 } end
  groups[group_id] = nil
else
  local number = 1
  for _, group in pairs(groups) do if type(group) == 'table' then number = number + 1 end end
  if not before and number > tonumber(ARGV[4]) then return { -1, 0 } end
  local fields = ARGV[3] ~= '1' and before or {}
  for name, value in pairs(cjson.decode(ARGV[2])) do fields[name] = value ~= '' and value or nil end
  groups[group_id] = fields
end
call('SET', P .. 'groups', next(groups) and cjson.encode(groups) or '')
local is_refused = ARGV[2] ~= '' and groups[group_id].may_announce == '0' and not was_refused
return { (ARGV[2] == '' or before) and 1 or 2, is_refused and 1 or 0 }
