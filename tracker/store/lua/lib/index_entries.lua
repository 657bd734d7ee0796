-- index_entries.lua: entries of indexes that follow from fields, written once for all members (at most some hundreds).
--
-- Announces do not write these indexes, as that would make them dearer. Scripts that change a torrent or a user do, and
-- jobs visit all of them again and again, also for what a site writes.
local index_entries = {} -- score by index and member; false: not listed

-- Without a score the member is not listed. The last call for a member counts.
local function note_entry(index, member, score)
  index_entries[index] = index_entries[index] or {}
  index_entries[index][member] = score or false
end

-- Writes what was noted. An index of a wrong type is left out.
local function write_index_entries()
  for index, scores in pairs(index_entries) do
    local added, removed = {}, {} -- arguments of ZADD and ZREM
    for member, score in pairs(scores) do
      local list = score and added or removed
      if score then list[#list + 1] = score end
      list[#list + 1] = member
    end
    if #added > 0 then redis.pcall('ZADD', P .. 'i:' .. index, unpack(added)) end
    if #removed > 0 then redis.pcall('ZREM', P .. 'i:' .. index, unpack(removed)) end
  end
end

-- A stored number; nil if there is none, or a program wrote another text.
local function stored_number(digits)
  return digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits) or nil
end
