-- work_project.lua: a project of work, and its keys. Needs `project`, its name.
--
-- All keys of a project begin with W. A queue is named by its key after W: 'todo', 'todo:secondary', 'todo:redo', or
-- 'todo:d:<claimant>', a claimant's own. A claim is named '<item> <claimant>'; a claimant has no space.
local W = P .. 'w:' .. project

-- The fields of the project; nil when there is no such project, or it is being deleted. Each field costs time to read,
-- so the arguments name those that the script always needs; others are read when they are first used.
local function read_project(...)
  local v, names = call('HMGET', W, 'kind', 'deleting', 'verify', ...), { ... }
  if not v[1] or v[2] then return nil end
  local fields = { kind = v[1], verify = v[3] or '' }
  for i, name in ipairs(names) do fields[name] = v[i + 3] or '' end
  return setmetatable(fields, {
    __index = function(row, name)
      local value = call('HGET', W, name) or ''
      rawset(row, name, value)
      return value
    end,
  })
end
