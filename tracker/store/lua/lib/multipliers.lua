-- multipliers.lua: how much of a user's traffic is credited. After whole.lua; needs `now`, and `batch_keys` and
-- `batch_values`, whose last two are the multipliers for everybody where there are accounts.
--
-- A torrent, a user and the whole tracker may each have rules for upload and for download, such as
-- `2 1790000000 donor, 1.5 group`. Of all that have not ended the best counts: of upload the highest, of download the
-- lowest. But a torrent with a rule of 0 for each is neutral: nothing counts there.

--@ include lib/rules.lua

-- The best of the rules in a text, by the text: many announces of a batch read the same. `zeros`: texts for upload that
-- hold a 0 beside something better. `numbers`: what was read, by its text, false for 1 and for text that is none, as
-- reading a number costs as much as a short command. `shown`: numbers as text.
local best_ups, best_downs, zeros, numbers, shown = {}, {}, {}, {}, {}
local match, now_text = string.match, string.format('%.0f', now)

-- The multiplier of a rule without a name that applies now; false for none, which 1 means as well; nil for text of
-- another form. Nearly all texts are such a rule.
local function read_plain(text)
  if #text > MAX_RULES_BYTES then return false end
  local value, ends = match(text, '^([%d.]+) ?(%d*)$')
  if not value then return end
  if #ends == #now_text then
    if ends <= now_text then return false end
  elseif ends ~= '' and (#ends > 12 or tonumber(ends) <= now) then
    return false
  end
  local number = numbers[value]
  if number == nil then
    number = tonumber(value) or false
    if number and (number == 1 or number > 1000) then number = false end
    numbers[value] = number
  end
  return number
end

local function read_rules(text, known)
  local best, number = false, 0
  for rule in string.gmatch(text, '[^,]+') do
    local value, ends = parse_rule(rule)
    number = number + 1
    if number > MAX_RULES then break end
    if value and value ~= 1 and not (ends and ends <= now) then
      if value == 0 and known == best_ups then zeros[text] = true end
      if not best or known == best_ups and value > best or known == best_downs and value < best then best = value end
    end
  end
  return best
end

-- The best of a text that several announces of a batch read. `known`: best_ups or best_downs.
local function shared_best(text, known)
  local best = text and known[text]
  if best == nil then
    best = read_plain(text)
    if best == nil then best = read_rules(text, known) end
    known[text] = best
  end
  return best
end

-- The same for a user's own: noting a rule that only this user has would cost more than reading it.
local function own_best(text, known)
  local best = text and known[text]
  if best == nil then
    best = read_plain(text)
    if best == nil then return shared_best(text, known) end
  end
  return best
end

local UPLOAD_OF_ALL, DOWNLOAD_OF_ALL = #batch_keys - 1, #batch_keys

-- On a neutral torrent no upload counts, and no download does on any torrent with a 0 for it.
local function upload_multiplier(t, r)
  local up, own = shared_best(t.multi_up, best_ups), own_best(r.user[4], best_ups)
  if (up == 0 or zeros[t.multi_up]) and shared_best(t.multi_dn, best_downs) == 0 then return 0 end
  local of_all = shared_best(batch_values[UPLOAD_OF_ALL], best_ups)
  if own and not (up and up > own) then up = own end
  if of_all and not (up and up > of_all) then up = of_all end
  return up or 1
end

-- A freeleech token that has not ended makes the download free.
local function download_multiplier(t, r, a)
  local ends = a.user[3]
  if ends and whole(ends) > now then return 0 end
  local down, own = shared_best(t.multi_dn, best_downs), own_best(r.user[5], best_downs)
  local of_all = shared_best(batch_values[DOWNLOAD_OF_ALL], best_downs)
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
