-- multipliers.lua: how much of a user's traffic is credited. After max_exact.lua and numbers.lua; needs `now`,
-- `accounts` and `batch_values`, whose last two are the multipliers for everybody where there are accounts.
--
-- A torrent, a user and the whole tracker may each have a multiplier of upload and one of download. It is stored as a
-- number, or as a number, a space and the time when it ends (epoch s).

-- A multiplier that applies now; nil for none: 1, one that has ended, or text of another form.
local function parse_multiplier(text)
  if not text then return end
  local number = tonumber(text)
  if not number then
    local value, ends = string.match(text, '^(%S+) (%d+)$')
    number = ends and tonumber(ends) > now and tonumber(value)
  end
  if not number or number == 1 then return end
  return number > 0 and min(number, MAX_EXACT) or 0
end

local upload_of_all, download_of_all
if accounts then
  upload_of_all = parse_multiplier(batch_values[#batch_keys - 1])
  download_of_all = parse_multiplier(batch_values[#batch_keys])
end

-- The multipliers of a user's upload and download on a torrent. The best one counts: of upload the highest, of download
-- the lowest. `a` is given when a freeleech token counts: `u:<uid>:freeleech` holds torrents by the end of their
-- tokens, and `freeleech_until` of the user is the last end.
local function multipliers_of(t, r, a)
  local up, down = parse_multiplier(t.multi_up), parse_multiplier(t.multi_dn)
  local own_up, own_down = parse_multiplier(r.user[4]), parse_multiplier(r.user[5])
  if own_up and not (up and up > own_up) then up = own_up end
  if own_down and not (down and down < own_down) then down = own_down end
  if upload_of_all and not (up and up > upload_of_all) then up = upload_of_all end
  if download_of_all and not (down and down < download_of_all) then down = download_of_all end
  if a and down ~= 0 and a.user[3] and whole(a.user[3]) > now then
    local ends = redis.pcall('ZSCORE', P .. 'u:' .. r.uid .. ':freeleech', t.tid)
    if type(ends) == 'string' and tonumber(ends) > now then down = 0 end
  end
  return up or 1, down or 1
end

-- The answer to a join, with the multipliers that apply, so that the client can be told.
local function with_multipliers(t, r, a, answer)
  local up, down = multipliers_of(t, r, a)
  if up == 1 and down == 1 then return answer end
  return { 3, answer, string.format('%.6g', up), string.format('%.6g', down) }
end
