-- work_totals.lua: totals of all time of a project. After work_project.lua.
local function add_to_total(name, n)
  call('HINCRBY', W .. ':totals', name, n)
end
