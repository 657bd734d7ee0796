-- array_insert.lua: adds a peer to the packed arrays of a swarm. After torrent.lua and ids.lua.

-- Redis doubles the allocation of a string that grows, up to a megabyte, which made up a third of all array memory. So
-- a full array is first extended by exactly an eighth. `slots`: number in use; `capacity`: number after the extension.
local LARGE = 524288
local function reserve(key, slots, capacity, size)
  if slots * size > LARGE then return end
  call('SET', key, call('GETRANGE', key, 0, slots * size - 1) .. string.rep('\0', (capacity - slots) * size))
end

-- Adds an endpoint to the array `kind .. family` and returns its slot. With `random`, and once the array holds more
-- than one reply, the slot is random and its peer moves to the end, so that peers that join together are not returned
-- together. The slot at the end counts only after save_torrent(). So when the arrays are of a wrong type, this fails
-- and changes no slot that counts. The ids are written first, as their length shows whether the arrays were full.
local SHUFFLED_FROM = 50
local function insert_slot(t, kind, family, endpoint, pid, random)
  local name, last, size = kind .. family, t[kind .. family], #endpoint
  local key, slot = t.arrays .. name, random and last >= SHUFFLED_FROM and math.floor(random / 3) % (last + 1) or last
  local last_id, last_endpoint = pid, endpoint
  if slot < last then
    last_id = call('GETRANGE', key .. 'i', slot * 20, slot * 20 + 19)
    last_endpoint = call('GETRANGE', key, slot * size, slot * size + size - 1)
    if #last_id < 20 or #last_endpoint < size then slot, last_id, last_endpoint = last, pid, endpoint end
  end
  local length = call('SETRANGE', key .. 'i', last * 20, last_id)
  if length == last * 20 + 20 and last > 0 and call('STRLEN', key) <= last * size then
    local capacity = last + math.max(4, math.floor(last / 8))
    reserve(key, last, capacity, size)
    reserve(key .. 'i', last + 1, capacity, 20)
  end
  call('SETRANGE', key, last * size, last_endpoint)
  if slot < last then
    call('SETRANGE', key .. 'i', slot * 20, pid)
    call('SETRANGE', key, slot * size, endpoint)
    redis.pcall('HSET', P .. 'p:' .. t.tid .. ':' .. to_hex(last_id), 'n' .. family, last)
  end
  t[name] = last + 1
  return slot
end
