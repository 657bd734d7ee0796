-- work_fields.lua: what work distribution reads of a torrent, and of a user's account on it.
local TORRENT_FIELDS = { 'tid', 'user_downloaded', 'size', 'enabled', 'private' }
local ACCOUNT_FIELDS = { 'seed_time', 'uploaded', 'downloaded', 'left', 'until', 'peers' }
