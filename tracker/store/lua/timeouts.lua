-- timeouts.lua: when silent peers are looked at. A fragment for announce.lua and due.lua, after `P`, `now`, `shortest_timeout`
-- (s) and `call`.
--
-- A peer stands in one due list at a time, and its timeout says in which, by four digits: more would cost 16 bytes a peer. Announces renew the timeout and leave it there; when
-- the list's time has come, due.lua puts the peer into the next. So that no list comes too late, it is never one later than
-- an announce could make the timeout end from now on. Lists are written once for a whole call.
local DUE_STEP = 2 -- seconds: a list holds the timeouts that end in the two seconds before its deadline
local due_entries = {}

-- What the timeouts of those in a list hold. Another list that is called the same is five hours away; an entry too many there
-- does no harm, for who is in two lists goes on into one.
local function name_due(deadline)
  return string.format('%d', deadline / DUE_STEP % 10000)
end

-- Puts a peer whose timeout ends in so many milliseconds into its list; the answer is what the timeout has to hold.
local function put_due(tid, pid, milliseconds)
  local seconds = math.min(milliseconds / 1000, shortest_timeout)
  local due = math.ceil((now + 1 + seconds) / DUE_STEP) * DUE_STEP
  local entries = due_entries[due]
  if not entries then
    entries = {}
    due_entries[due] = entries
  end
  entries[#entries + 1] = pid .. tid
  return name_due(due)
end

local function save_due_entries()
  for due, entries in pairs(due_entries) do
    local list = P .. 'due:' .. string.format('%.0f', due)
    if call('RPUSH', list, unpack(entries)) == #entries then call('EXPIREAT', list, due + 86400) end
  end
end
