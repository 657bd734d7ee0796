-- user_ids.lua: the last user id that was given out.

-- Later ids are above this one. An id of 15 digits is ignored: it would leave too few.
local function raise_last_id(uid)
  if #uid < 15 and tonumber(uid) > (tonumber(call('GET', P .. 'user_id') or '') or 0) then
    call('SET', P .. 'user_id', uid)
  end
end
