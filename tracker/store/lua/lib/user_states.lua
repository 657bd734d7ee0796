-- user_states.lua: the indexes of disabled users, and of users who may not download. After `P` and `call`.
--
-- Scripts that change a user write them, and for what a site writes, a job lists all users again and again.

local STATES = { enabled = 'disabled', can_leech = 'blocked' } -- the index of users without this right
local without = { enabled = {}, can_leech = {} } -- arguments of ZADD
local having = { enabled = {}, can_leech = {} } -- user ids

-- Notes a right as stored; nil, false or '': it is not set, so the user has it. At most some hundreds in one call of a
-- script.
local function note_right(uid, right, value)
  local list = value == '0' and without[right] or having[right]
  if value == '0' then list[#list + 1] = uid end -- the score: these indexes are ordered by id
  list[#list + 1] = uid
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_states()
  for right, state in pairs(STATES) do
    if #without[right] > 0 then redis.pcall('ZADD', P .. 'i:user_' .. state, unpack(without[right])) end
    if #having[right] > 0 then redis.pcall('ZREM', P .. 'i:user_' .. state, unpack(having[right])) end
  end
end
