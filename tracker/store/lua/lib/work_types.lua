-- work_types.lua: checks the types of a project's keys. After work_project.lua.

-- A failed command does not undo those before it, so a key of a wrong type fails here, before the first write.
local function check_types()
  for _, index in ipairs({ ':out', ':todo', ':todo:secondary', ':todo:redo', ':lapsed', ':done', ':checks' }) do
    call('ZCARD', W .. index)
  end
  for _, hash in ipairs({ ':out:tokens', ':claims', ':wanted', ':asked', ':holders', ':trust', ':lapsed:claims' }) do
    call('HLEN', W .. hash)
  end
end
