-- user_lists.lua: the indexes of users by uploaded, downloaded and ratio, of disabled users, and of users who may not
-- download.
--
-- Announces do not write these indexes, as that would make each credited announce dearer. Scripts that change a user
-- do, and a job lists all users again and again, also for what a site writes.

local STATES = { enabled = 'disabled', can_leech = 'blocked' } -- the index of users without this right
local user_scores = { uploaded = {}, downloaded = {}, ratio = {}, disabled = {}, blocked = {} } -- false: not listed

local function total_of(digits)
  return digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits) or 0
end

-- Notes a user's totals as stored. At most some hundreds of users in one call of a script.
local function note_rank(uid, uploaded, downloaded)
  local up, down = total_of(uploaded), total_of(downloaded)
  user_scores.uploaded[uid], user_scores.downloaded[uid] = up, down
  user_scores.ratio[uid] = down > 0 and up / down or up > 0 and 'inf' or 0
end

-- Notes a right as stored; nil, false or '': it is not set, so the user has it. The last value of a user counts.
local function note_right(uid, right, value)
  user_scores[STATES[right]][uid] = value == '0' and uid
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_user_lists()
  for index, scores in pairs(user_scores) do
    local added, removed = {}, {} -- arguments of ZADD and ZREM
    for uid, score in pairs(scores) do
      local list = score and added or removed
      if score then list[#list + 1] = score end
      list[#list + 1] = uid
    end
    if #added > 0 then redis.pcall('ZADD', P .. 'i:user_' .. index, unpack(added)) end
    if #removed > 0 then redis.pcall('ZREM', P .. 'i:user_' .. index, unpack(removed)) end
  end
end
