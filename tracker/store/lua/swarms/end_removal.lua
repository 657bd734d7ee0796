#!lua flags=allow-oom
-- end_removal.lua: forgets that peers are to be removed: they are, or may stay.
-- ARGV[1]   an entry of `removing` (removed_users.lua), or `torrent:<info hash>`
-- Answer    nothing
local P, call, kind, id = KEYS[1], redis.call, string.match(ARGV[1], '^(%l+):(.*)$')
--@ include lib/barred_users.lua
if kind == 'torrent' then
  redis.pcall('SREM', P .. 'removing:torrents', id)
  return
end
-- All torrents of the user were visited, so none is active. An entry that is left would keep a deletion waiting.
if kind == 'user' and id ~= '*' and is_user_barred(id) then call('UNLINK', P .. 'u:' .. id .. ':active') end
local entries = redis.pcall('GET', P .. 'removing')
if type(entries) == 'string' then
  local from, till = string.find(entries, ' ' .. ARGV[1] .. ' ', 1, true)
  if from then entries = string.sub(entries, 1, from) .. string.sub(entries, till + 1) end
  if entries == ' ' then call('DEL', P .. 'removing') else call('SET', P .. 'removing', entries) end
end
