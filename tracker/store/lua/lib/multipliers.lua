-- multipliers.lua: how much of a user's traffic is credited. After max_exact.lua and numbers.lua; needs `now`,
-- and `batch_keys` and `batch_values`, whose last two are the multipliers for everybody where there are accounts.
--
-- A torrent, a user and the whole tracker may each have a multiplier of upload and one of download. It is stored as a
-- number, or as a number, a space and the time when it ends (epoch s). The best one counts: of upload the highest, of
-- download the lowest.

-- What has been read, by its text: numbers (false for 1 and for text that is none), and the multipliers of torrents and
-- of everybody; and how numbers are shown. Reading a number costs as much as a short command.
local numbers, shared, shown = {}, {}, {}
local byte = string.byte

local function read_number(text)
  local number = tonumber(text)
  if not number or number == 1 then return false end
  return number > 0 and min(number, MAX_EXACT) or 0
end

-- A multiplier that applies now; false or nil for none: 1, one that has ended, or text of another form. An end of ten
-- digits stands at a fixed place; any other text is matched.
local function parse_multiplier(text)
  if not text then return end
  local value, ends = text, nil
  if byte(text, -11) == 32 then
    value, ends = sub(text, 1, -12), sub(text, -10)
  elseif not tonumber(text) then
    value, ends = string.match(text, '^(%S+) (%d+)$')
  end
  if ends and (tonumber(ends) or 0) <= now then return false end
  local number = numbers[value or '']
  if number == nil then
    number = read_number(value or '')
    numbers[value or ''] = number
  end
  return number
end

-- The same for a text that several announces of a batch read.
local function shared_multiplier(text)
  local found = shared[text]
  if text and found == nil then
    found = parse_multiplier(text)
    shared[text] = found
  end
  return found
end

local UPLOAD_OF_ALL, DOWNLOAD_OF_ALL = #batch_keys - 1, #batch_keys

local function upload_multiplier(t, r)
  local up, own = shared_multiplier(t.multi_up), parse_multiplier(r.user[4])
  local of_all = shared_multiplier(batch_values[UPLOAD_OF_ALL])
  if own and not (up and up > own) then up = own end
  if of_all and not (up and up > of_all) then up = of_all end
  return up or 1
end

-- A freeleech token that has not ended makes the download free.
local function download_multiplier(t, r, a)
  local ends = a.user[3]
  if ends and whole(ends) > now then return 0 end
  local down, own = shared_multiplier(t.multi_dn), parse_multiplier(r.user[5])
  local of_all = shared_multiplier(batch_values[DOWNLOAD_OF_ALL])
  if own and not (down and down < own) then down = own end
  if of_all and not (down and down < of_all) then down = of_all end
  return down or 1
end

local function show(number)
  if not shown[number] then shown[number] = string.format('%.6g', number) end
  return shown[number]
end

-- The answer to a join, with the multipliers that apply, so that the client can be told.
local function with_multipliers(t, r, a, answer)
  local up, down = upload_multiplier(t, r), download_multiplier(t, r, a)
  if up == 1 and down == 1 then return answer end
  return { 3, answer, show(up), show(down) }
end
