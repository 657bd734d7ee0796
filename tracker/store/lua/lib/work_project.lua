-- work_project.lua: a project of work, and its keys. After `P` and `call`; needs `project`, its name.
--
-- All keys of a project begin with W. A queue is named by its key after W: 'todo', 'todo:secondary', 'todo:redo', or
-- 'todo:d:<claimant>', a claimant's own. A claim is named '<item> <claimant>'; a claimant has no space.
local W = P .. 'w:' .. project
local PROJECT_FIELDS = {
  'kind', 'deleting', 'min_version', 'per_minute', 'start_budget', 'budget', 'lease_seconds', 'verify', 'domains',
  'block_wrong_domains', 'lapsed_to_redo', 'claim_days', 'keep_done_days', 'outage_from', 'outage_until', 'outage_ms',
}

-- The fields of the project; nil when there is no such project, or it is being deleted.
local function read_project()
  local v, fields = call('HMGET', W, unpack(PROJECT_FIELDS)), {}
  if not v[1] or v[2] then return nil end
  for i, name in ipairs(PROJECT_FIELDS) do fields[name] = v[i] or '' end
  return fields
end
