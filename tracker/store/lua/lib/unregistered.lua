-- unregistered.lua: refuses an announce of a torrent that is not registered, and keeps its info hash for the user. A
-- fragment of announce.lua, after announce_request.lua.
local KEPT_SECONDS, FIRST_SECONDS, MAX_UNREGISTERED = 7776000, 600, 100

-- When the user first tried the torrent; keeps it as tried now if that is unknown. nil where nothing may be written.
local function first_tried(r)
  local key = P .. 'u:' .. r.uid .. ':unregistered'
  local since = tonumber(call('ZSCORE', key, r.ih) or '')
  if since and since >= now - KEPT_SECONDS then return since end
  if not may_grow then return nil end
  call('ZREMRANGEBYSCORE', key, '-inf', now - KEPT_SECONDS)
  call('ZREMRANGEBYRANK', key, 0, -MAX_UNREGISTERED)
  call('ZADD', key, now, r.ih)
  call('EXPIRE', key, KEPT_SECONDS)
  return now
end

-- Who uploads a torrent often starts seeding before the site has registered it: the first refusals are retried soon.
local function refuse_unregistered(r)
  local is_user = #r.uid <= 15 and string.find(r.uid, '^[1-9]%d*$') -- not '', and no invalid id that a site wrote
  if not is_user or r.event == 'x' or r.event == 'q' then return refuse('unknown torrent') end
  local ok, since = pcall(first_tried, r) -- a key of a wrong type
  return refuse(ok and since and now - since < FIRST_SECONDS and 'unknown torrent at first' or 'unknown torrent')
end
