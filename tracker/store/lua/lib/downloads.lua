-- downloads.lua: a user downloads at most `max_downloads` torrents at once (0: any number). A fragment of announce.lua,
-- after numbers.lua and whole_field.lua.

-- True when a join would be one download too many. Downloads are the incomplete torrents on which the user is active; a
-- second peer of the user on one of these is no further download.
local function has_max_downloads(r, tid)
  if r.uid == '' or r.left == '0' or r.moves_only then return false end
  local own = r.user[6]
  local limit = tonumber(own or '') and whole_field(own) or max_downloads
  if limit == 0 then return false end
  local user = P .. 'u:' .. r.uid
  local downloads = call('SINTERCARD', 2, user .. ':active', user .. ':incomplete', 'LIMIT', decimal(limit))
  return downloads >= limit and call('SISMEMBER', user .. ':active', tid or '') == 0
end
