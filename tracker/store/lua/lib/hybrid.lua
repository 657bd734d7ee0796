-- hybrid.lua: the v2 half of a hybrid torrent (BEP 52), whose v1 half counts for users.
--
-- A client announces both halves with the same totals. `hybrid_of` of the v2 half is the info hash of the v1 half.

-- Whether the v1 half counts in place of torrent `ih`: it is registered, is served, and is no v2 half itself. One in
-- another shard cannot be read here: what sets the field checks that, and what removes a half deletes the field.
local function counts_elsewhere(ih, v1)
  if not v1 or v1 == ih or #v1 ~= 40 or string.find(v1, '[^0-9a-f]') then return false end
  local keys = call('MGET', P .. 'info_hash:' .. v1, P .. 'deny:' .. v1)
  if not keys[1] and string.find(P, ':{%d+%l+}:$') then return true end
  if not keys[1] or keys[2] then return false end
  local v = redis.pcall('HMGET', P .. 't:' .. v1, 'enabled', 'hybrid_of')
  return not v.err and v[1] ~= '0' and v[1] ~= 'pending' and (v[2] or '') == ''
end
