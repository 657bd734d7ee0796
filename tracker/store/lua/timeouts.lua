-- timeouts.lua: when silent peers are looked at. A fragment for announce.lua and due.lua, after `P`, `now`, `shortest_timeout`
-- (s) and `call`.
--
-- A peer stands in one due list at a time, and its timeout says in which. Announces renew the timeout and leave it there; when
-- the list's time has come, due.lua puts the peer into the next. So that no list comes too late, it is never one later than
-- an announce could make the timeout end from now on. Lists are written once for a whole call.
local DUE_STEP = 2 -- seconds: a list holds the timeouts that end in the two seconds before its deadline
local due_entries = {}

-- Puts a peer whose timeout ends in so many milliseconds into its list; the answer is that list's deadline.
local function put_due(tid, pid, milliseconds)
  local seconds = math.min(milliseconds / 1000, shortest_timeout)
  local due = math.ceil((now + 1 + seconds) / DUE_STEP) * DUE_STEP
  local entries = due_entries[due]
  if not entries then
    entries = {}
    due_entries[due] = entries
  end
  entries[#entries + 1] = struct.pack('>I8c20', tid, pid)
  return string.format('%.0f', due)
end

local function save_due_entries()
  for due, entries in pairs(due_entries) do
    local list = P .. 'due:' .. string.format('%.0f', due)
    if call('APPEND', list, table.concat(entries)) == #entries * 28 then call('EXPIREAT', list, due + 86400) end
  end
end
