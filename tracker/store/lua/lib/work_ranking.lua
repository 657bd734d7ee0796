-- work_ranking.lua: the leaderboards of a project, of all time, by month and by week. After work_project.lua. A
-- leaderboard of a wrong type only means that it is not kept.
local RANKINGS = { ':downloader_count', ':downloader_bytes', ':downloader_seconds' }

-- `periods` are separated by spaces; `verifies`: whether the project may have verified seconds.
-- Returns the claimant's sums of all time as text: items, bytes, seconds.
local function add_to_rankings(periods, claimant, bytes, seconds, verifies)
  local sums = {}
  for i, by in ipairs({ '1', bytes, seconds }) do
    local sum
    if i < 3 or by ~= '0' then
      for period in string.gmatch(periods, '%S+') do
        redis.pcall('ZINCRBY', W .. RANKINGS[i] .. ':' .. period, by, claimant)
      end
      sum = redis.pcall('ZINCRBY', W .. RANKINGS[i], by, claimant)
    elseif verifies then
      sum = redis.pcall('ZSCORE', W .. RANKINGS[i], claimant)
    end
    sums[i] = string.format('%.0f', type(sum) == 'string' and tonumber(sum) or 0)
  end
  return unpack(sums)
end
