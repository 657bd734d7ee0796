-- user_ranks.lua: the indexes of users by uploaded, downloaded and ratio. After `P` and `call`.
--
-- Announces do not write these indexes, as that would make each credited announce dearer. Scripts that change a user
-- do, and a job ranks all users again and again.

local function total_of(digits)
  return digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits) or 0
end

local function ratio_of(uploaded, downloaded)
  if downloaded > 0 then return uploaded / downloaded end
  return uploaded > 0 and 'inf' or 0
end

-- At most some hundreds. Users whose totals are of a wrong type are left out, and so is an index of a wrong type.
local function rank_users(uids)
  local uploads, downloads, ratios, n = {}, {}, {}, 0
  for _, uid in ipairs(uids) do
    local v = redis.pcall('HMGET', P .. 'u:' .. uid, 'uploaded', 'downloaded')
    if not v.err then
      local up, down = total_of(v[1]), total_of(v[2])
      uploads[n + 1], downloads[n + 1], ratios[n + 1] = up, down, ratio_of(up, down)
      uploads[n + 2], downloads[n + 2], ratios[n + 2] = uid, uid, uid
      n = n + 2
    end
  end
  if n == 0 then return end
  redis.pcall('ZADD', P .. 'i:user_uploaded', unpack(uploads))
  redis.pcall('ZADD', P .. 'i:user_downloaded', unpack(downloads))
  redis.pcall('ZADD', P .. 'i:user_ratio', unpack(ratios))
end
