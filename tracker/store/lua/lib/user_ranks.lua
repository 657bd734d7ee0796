-- user_ranks.lua: the indexes of users by uploaded, downloaded and ratio.
--
-- Announces do not write these indexes, as that would make each credited announce dearer. Scripts that change a user
-- do, and a job ranks all users again and again.

local uploads, downloads, ratios, rank_arguments = {}, {}, {}, 0

local function total_of(digits)
  return digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits) or 0
end

local function ratio_of(uploaded, downloaded)
  if downloaded > 0 then return uploaded / downloaded end
  return uploaded > 0 and 'inf' or 0
end

-- Notes a user's totals as stored. At most some hundreds in one call of a script.
local function note_rank(uid, uploaded, downloaded)
  local up, down, n = total_of(uploaded), total_of(downloaded), rank_arguments
  uploads[n + 1], downloads[n + 1], ratios[n + 1] = up, down, ratio_of(up, down)
  uploads[n + 2], downloads[n + 2], ratios[n + 2] = uid, uid, uid
  rank_arguments = n + 2
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_ranks()
  if rank_arguments == 0 then return end
  redis.pcall('ZADD', P .. 'i:user_uploaded', unpack(uploads))
  redis.pcall('ZADD', P .. 'i:user_downloaded', unpack(downloads))
  redis.pcall('ZADD', P .. 'i:user_ratio', unpack(ratios))
end
