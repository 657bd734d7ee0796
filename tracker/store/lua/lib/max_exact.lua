-- max_exact.lua: the largest whole number that a double holds exactly (2^53 - 1).
local MAX_EXACT = 9007199254740991
