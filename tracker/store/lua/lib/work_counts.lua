-- work_counts.lua: counts `work.<project>.<what>` in the slices and in the totals of the project. After slices.lua and
-- work_project.lua; needs `now` (epoch s).
local function count_work(what, n)
  add_to_slices('work.' .. project .. '.' .. what, now, n)
  add_bounded(W .. ':totals', what, n)
end
