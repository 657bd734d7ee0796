-- precisions.lua: the lengths (s) of the slices that each counter has. store/stats/slices.py has them as well.
local PRECISIONS = { 1, 5, 60, 300, 900, 3600, 7200, 18000, 28800, 86400 }
