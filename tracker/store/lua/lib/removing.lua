-- removing.lua: whose peers are being removed: while they are, announces do not return them.
--
-- `removing` holds entries between spaces: `user:<uid>`, and `client:<peer-id prefix in hex>`. A tracker removes the
-- peers within seconds, and then the entry. When many users are disabled together, `user:*` stands for all further
-- ones: announces then look up the user of each peer.
local MAX_REMOVING_USERS = 100

-- A key of a wrong type is replaced.
local function note_removing(entry)
  local entries = redis.pcall('GET', P .. 'removing')
  if type(entries) ~= 'string' then entries = ' ' end
  local _, users = string.gsub(entries, ' user:', '')
  if users >= MAX_REMOVING_USERS and string.sub(entry, 1, 5) == 'user:' then entry = 'user:*' end
  if string.find(entries, ' ' .. entry .. ' ', 1, true) then return end
  call('SET', P .. 'removing', entries .. entry .. ' ')
end
