-- groups.lua: groups of users, as JSON in `t:groups`: by id, the fields that are set; and `hidden` (removed_users.lua).

-- The fields of a group, or the text; nil when there is none. `text`: the groups, if they have been read.
local find_group
do
local known_text, groups_by_id

function find_group(group_id, text)
  if not group_id or group_id == '' then return end
  text = text or redis.pcall('GET', P .. 'groups')
  if type(text) ~= 'string' then return end
  if text ~= known_text then
    -- Of text that another program wrote amiss, what is no group or field is left out: an announce must not fail by it.
    local ok, found = pcall(cjson.decode, text)
    known_text, groups_by_id = text, {}
    for key, row in pairs(ok and type(found) == 'table' and found or {}) do
      if type(row) == 'table' then
        for name, value in pairs(row) do if type(value) ~= 'string' then row[name] = nil end end
        groups_by_id[key] = row
      elseif key == 'hidden' and type(row) == 'string' then
        groups_by_id.hidden = row
      end
    end
  end
  return groups_by_id[group_id]
end
end
