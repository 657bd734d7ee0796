-- due_lists.lua: when the timeout of a peer is checked. After `P`, `call`, `now` and `min_timeout` (s).
--
-- A peer is in one due list at a time. Its timeout key holds the name of the list in four digits: more would cost 16
-- bytes per peer. An announce renews the timeout and leaves the peer in its list; when the list is due, due.lua moves
-- the peer to the next one. A peer's list is never later than the shortest timeout from now, so a shortened interval is
-- still noticed in time. Lists are written once per call.
local DUE_STEP = 2 -- seconds: a list holds the timeouts that end in the two seconds before its deadline
local due_entries = {}

-- What the timeouts of the peers in a list hold. The next list with the same name is five hours away; a peer in both
-- does no harm, as a peer that is found in two lists moves on to one.
local function due_name(deadline)
  return string.format('%d', deadline / DUE_STEP % 10000)
end

-- Adds a peer whose timeout ends in so many milliseconds to its list. Returns what its timeout has to hold.
local function add_due(tid, pid, milliseconds)
  local seconds = milliseconds / 1000
  if seconds > min_timeout then seconds = min_timeout end
  local due = math.ceil((now + 1 + seconds) / DUE_STEP) * DUE_STEP
  local entries = due_entries[due]
  if not entries then
    entries = { name = due_name(due) }
    due_entries[due] = entries
  end
  entries[#entries + 1] = pid .. tid
  return entries.name
end

local function save_due_entries()
  for due, entries in pairs(due_entries) do
    local list = P .. 'due:' .. string.format('%.0f', due)
    if call('RPUSH', list, unpack(entries)) == #entries then call('EXPIREAT', list, due + 86400) end
  end
end
