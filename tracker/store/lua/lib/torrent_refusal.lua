-- torrent_refusal.lua: whether announces for a torrent are refused.
local function is_refused(ih)
  local known = call('MGET', P .. 'info_hash:' .. ih, P .. 'deny:' .. ih)
  local enabled = redis.pcall('HGET', P .. 't:' .. ih, 'enabled')
  return not known[1] or known[2] or enabled == '0' or enabled == 'pending'
end
