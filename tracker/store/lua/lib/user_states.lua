-- user_states.lua: the indexes of disabled users, and of users who may not download.
--
-- Scripts that change a user write them, and for what a site writes, a job lists all users again and again.

local STATES = { enabled = 'disabled', can_leech = 'blocked' } -- the index of users without this right
local without = { enabled = {}, can_leech = {} } -- by user id: whether the user is without the right

-- Notes a right as stored; nil, false or '': it is not set, so the user has it. The last value of a user counts. At
-- most some hundreds in one call of a script.
local function note_right(uid, right, value)
  without[right][uid] = value == '0'
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_states()
  for right, state in pairs(STATES) do
    local added, removed = {}, {} -- arguments of ZADD, whose scores are the ids, and of ZREM
    for uid, is_without in pairs(without[right]) do
      local list = is_without and added or removed
      if is_without then list[#list + 1] = uid end
      list[#list + 1] = uid
    end
    if #added > 0 then redis.pcall('ZADD', P .. 'i:user_' .. state, unpack(added)) end
    if #removed > 0 then redis.pcall('ZREM', P .. 'i:user_' .. state, unpack(removed)) end
  end
end
