-- user_lists.lua: indexes of users by uploaded, downloaded and ratio, of disabled users and those who cannot leech.
--@ include lib/index_entries.lua

-- Notes a user's totals as stored.
local function note_rank(uid, uploaded, downloaded)
  local up, down = stored_number(uploaded) or 0, stored_number(downloaded) or 0
  note_entry('user_uploaded', uid, up)
  note_entry('user_downloaded', uid, down)
  note_entry('user_ratio', uid, down > 0 and up / down or up > 0 and 'inf' or 0)
end
