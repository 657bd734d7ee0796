-- work_ranking.lua: the leaderboards of a project, of all time and by month. After work_project.lua.
local RANKINGS = { ':downloader_count', ':downloader_bytes', ':downloader_seconds' }

local function open_rankings(month)
  for _, ranking in ipairs(RANKINGS) do
    call('ZCARD', W .. ranking)
    call('ZCARD', W .. ranking .. ':' .. month)
  end
end

-- Returns the claimant's sums of all time as text: items, bytes, seconds.
local function add_to_rankings(month, claimant, bytes, seconds)
  local sums = {}
  for i, by in ipairs({ '1', bytes, seconds }) do
    local sum
    if i < 3 or by ~= '0' then
      call('ZINCRBY', W .. RANKINGS[i] .. ':' .. month, by, claimant)
      sum = call('ZINCRBY', W .. RANKINGS[i], by, claimant)
    else
      sum = call('ZSCORE', W .. RANKINGS[i], claimant) or '0'
    end
    sums[i] = string.format('%.0f', tonumber(sum))
  end
  return unpack(sums)
end
