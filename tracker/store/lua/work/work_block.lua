#!lua
-- work_block.lua: blocks or unblocks a claimant, an address or a network.
-- ARGV[1]   project ('': all)   ARGV[2] 'blocked' or 'unblocked'   ARGV[3] who   ARGV[4] now (epoch ms)
-- ARGV[5]   max entries of the log
-- Answer    1 when something changed, else 0; nil when there is no such project
local P, call, project = KEYS[1], redis.call, ARGV[1]
local set = project == '' and P .. 'w:blocked' or P .. 'w:' .. project .. ':blocked'
local log = P .. 'w:' .. project .. ':blocked:log'
if project ~= '' then
  local v = call('HMGET', P .. 'w:' .. project, 'kind', 'deleting')
  if not v[1] or v[2] then return nil end
  call('XLEN', log)
end
local changed = call(ARGV[2] == 'blocked' and 'SADD' or 'SREM', set, ARGV[3])
if changed == 1 and project ~= '' then
  call('XADD', log, 'MAXLEN', '~', ARGV[5], '*', 'at', ARGV[4], 'what', ARGV[2], 'who', ARGV[3])
end
return changed
