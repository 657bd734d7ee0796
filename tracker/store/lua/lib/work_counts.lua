-- work_counts.lua: the totals of all time of a project. After numbers.lua and work_project.lua.
--
-- work_lapse.lua moves what was added since its last run to the counters in slices: that way a claim costs one command
-- here instead of seven, and nothing is lost or counted twice when a tracker dies.
local function count_work(what, n)
  add_bounded(W .. ':totals', what, n)
end
