-- peer_removal.lua: leaves out peers that are being removed (removing.lua). A fragment of peer_selection.lua; needs
-- `removing`, the entries.
--@ include lib/barred_users.lua
--@ include lib/denied_clients.lua
local is_client_removed = new_client_check((string.gsub(removing, 'user:%S+', '')))
local has_users, looks_up = find(removing, ' user:', 1, true), find(removing, ' user:* ', 1, true)

-- True when the peer with an id of 20 bytes is being removed.
local function is_removed(tid, pid)
  local idx = string.format('%08x%08x%08x%08x%08x', read('>I4I4I4I4I4', pid))
  local p = call('HMGET', P .. 'p:' .. tid .. ':' .. idx, 'user_id', 'peer_id')
  local uid, announced = p[1], p[2]
  if uid and has_users and (find(removing, ' user:' .. uid .. ' ', 1, true) or looks_up and is_user_barred(uid)) then
    return true
  end
  if not is_client_removed then return false end
  if announced and #announced == 20 then
    idx = string.format('%08x%08x%08x%08x%08x', read('>I4I4I4I4I4', announced))
  end
  return is_client_removed(idx)
end

-- The endpoints of `size` bytes and the ids without those of removed peers.
local function filter_removed(tid, peers, ids, size)
  local stay, stay_ids = {}, {}
  for i = 0, #peers / size - 1 do
    local pid = sub(ids, i * 20 + 1, i * 20 + 20)
    if #pid == 20 and not is_removed(tid, pid) then
      stay[#stay + 1], stay_ids[#stay + 1] = sub(peers, i * size + 1, i * size + size), pid
    end
  end
  return table.concat(stay), table.concat(stay_ids)
end
