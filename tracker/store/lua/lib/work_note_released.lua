-- work_note_released.lua: notes that a claimant gave a claim back. After numbers.lua and work_released.lua.
local function note_released(who)
  local counts = math.min(released_ms(who), (MAX_RELEASED - 1) * RELEASED_MS) + RELEASED_MS
  call('ZADD', W .. ':released', decimal(now_ms + counts), who)
end
