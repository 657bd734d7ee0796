-- work_project.lua: a project of work, and its keys. After `P` and `call`; needs `project`, its name.
--
-- All keys of a project begin with W. A queue is named by its key after W: 'todo', 'todo:secondary', 'todo:redo', or
-- 'todo:d:<claimant>', a claimant's own. A claim is named '<item> <claimant>'; a claimant has no space.
local W = P .. 'w:' .. project
local PROJECT_FIELDS = {
  'kind', 'deleting', 'min_version', 'per_minute', 'start_budget', 'budget', 'lease_seconds', 'verify', 'domains',
  'block_wrong_domains', 'lapsed_to_redo', 'outage_from', 'outage_until', 'outage_ms',
}

-- The fields of the project; nil when there is no such project, or it is being deleted. A failed command does not undo
-- those before it, so a key of a wrong type fails here.
local function read_project()
  local v, fields = call('HMGET', W, unpack(PROJECT_FIELDS)), {}
  if not v[1] or v[2] then return nil end
  for _, index in ipairs({ ':out', ':todo', ':todo:secondary', ':todo:redo', ':lapsed', ':done', ':done:by' }) do
    call('ZCARD', W .. index)
  end
  for _, hash in ipairs({ ':out:tokens', ':claims', ':wanted', ':asked', ':holders', ':trust', ':totals' }) do
    call('HLEN', W .. hash)
  end
  for i, name in ipairs(PROJECT_FIELDS) do fields[name] = v[i] or '' end
  return fields
end
