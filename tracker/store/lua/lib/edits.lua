-- edits.lua: the users and torrents that programs changed, in the stream `edits`, for lists with `updated_since`.
--
-- Those lists also need the change feed, and reach back no further than its oldest change. So nothing is recorded while
-- there is no feed. With several shards all edits are recorded: the feed may be in other shards.
local MAX_EDITS = 100000
local has_feed = string.find(P, ':{%d+%l+}:$') or string.find(P, ':{main}:$') or call('EXISTS', P .. 'changes') == 1

-- Of a user or of a torrent; the other is ''. All entries have the same fields, whose names the server stores once.
local function record_edit(uid, ih)
  if has_feed then redis.pcall('XADD', P .. 'edits', 'MAXLEN', '~', MAX_EDITS, '*', 'user_id', uid, 'info_hash', ih) end
end
