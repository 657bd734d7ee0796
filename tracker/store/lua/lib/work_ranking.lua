-- work_ranking.lua: the leaderboards of a project, of all time, by month and by week. After work_project.lua. A
-- leaderboard of a wrong type only means that it is not kept.
local RANKINGS = { ':downloader_count', ':downloader_bytes', ':downloader_seconds' }

-- `periods` are separated by spaces; `sums` are finished items, bytes and seconds. Returns the claimant's sums of all
-- time as text, in the same order.
local function add_to_rankings(periods, claimant, sums)
  local totals = {}
  for i, sum in ipairs(sums) do
    local total
    if i < 3 or sum > 0 then
      for period in string.gmatch(periods, '%S+') do
        redis.pcall('ZINCRBY', W .. RANKINGS[i] .. ':' .. period, decimal(sum), claimant)
      end
      total = redis.pcall('ZINCRBY', W .. RANKINGS[i], decimal(sum), claimant)
    else
      total = redis.pcall('ZSCORE', W .. RANKINGS[i], claimant)
    end
    totals[i] = decimal(type(total) == 'string' and tonumber(total) or 0)
  end
  return unpack(totals)
end
