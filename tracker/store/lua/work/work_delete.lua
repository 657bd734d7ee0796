#!lua flags=allow-oom
-- work_delete.lua: deletes a project, step by step: it is gone for all others after the first step.
-- ARGV[1]   project   ARGV[2] max claims, items and claimants to delete in this step
-- ARGV[3..] months and weeks that may have leaderboards (YYYY-MM, YYYY-Www)
-- Answer    1 when nothing is left, else 0; nil when there is no such project
local P, call, project = KEYS[1], redis.call, ARGV[1]
local W, count = P .. 'w:' .. project, ARGV[2]
if call('EXISTS', W) == 0 then return nil end
call('HSET', W, 'deleting', '1')

local claims = call('ZPOPMIN', W .. ':out', count)
for i = 1, #claims, 2 do call('UNLINK', W .. ':by:' .. string.match(claims[i], '%S+$')) end
local asked = call('HRANDFIELD', W .. ':asked', count, 'WITHVALUES')
for i = 1, #asked, 2 do
  for claimant in string.gmatch(asked[i + 1], '%S+') do call('UNLINK', W .. ':todo:d:' .. claimant) end
  call('HDEL', W .. ':asked', asked[i])
end
local ranked = call('ZPOPMIN', W .. ':downloader_count', count)
for i = 1, #ranked, 2 do call('UNLINK', W .. ':chart:' .. ranked[i]) end
if #claims + #asked + #ranked > 0 then return 0 end

local boards = { ':downloader_count', ':downloader_bytes', ':downloader_seconds' }
for _, board in ipairs(boards) do
  for i = 3, #ARGV do call('UNLINK', W .. board .. ':' .. ARGV[i]) end
  call('UNLINK', W .. board)
end
for key in string.gmatch(':todo :todo:secondary :todo:redo :wanted :asked :holders :out :out:tokens :claims :checks '
    .. ':looked :trust :released :lapsed :lapsed:claims :done :done:by :totals :log :downloader_version :domain_bytes '
    .. ':chart :blocked :blocked:log :rate :policy :needs', '%S+') do
  call('UNLINK', W .. key)
end
--@ include lib/slices.lua
for _, what in ipairs({ 'claimed', 'done', 'lapsed', 'released', 'repaired', 'bytes', 'refused' }) do
  for _, precision in ipairs(PRECISIONS) do
    local counter = precision .. ':work.' .. project .. '.' .. what
    call('UNLINK', P .. 'count:' .. counter)
    call('ZREM', P .. 'known:', counter)
  end
end
call('SREM', P .. 'w', project)
call('UNLINK', W)
return 1
