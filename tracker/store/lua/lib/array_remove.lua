-- array_remove.lua: removes a peer from the packed arrays of a swarm. After torrent.lua and ids.lua.

-- Redis cannot shorten a string, so bytes beyond the last slot remain. They are freed once in 64 removals: to copy the
-- array at each removal would cost O(swarm).
local function trim_array(key, n, size)
  if n == 0 then
    call('UNLINK', key, key .. 'i')
  elseif n % 64 == 0 and call('STRLEN', key) > (2 * n + 128) * size then
    call('SET', key, call('GETRANGE', key, 0, n * size - 1))
    call('SET', key .. 'i', call('GETRANGE', key .. 'i', 0, n * 20 - 1))
  end
end

-- The ids in two slots of an array. One read returns both when the slots are close together.
local NEAR = 100
local function read_ids(ids, slot, last)
  if last - slot > NEAR then
    return call('GETRANGE', ids, slot * 20, slot * 20 + 19), call('GETRANGE', ids, last * 20, last * 20 + 19)
  end
  local both = call('GETRANGE', ids, slot * 20, last * 20 + 19)
  if #both < (last - slot + 1) * 20 then return end
  return string.sub(both, 1, 20), string.sub(both, -20)
end

-- Removes a slot by moving the last one into it. A slot that holds another peer is left as it is: the sweep repairs
-- that swarm.
local function remove_slot(t, kind, family, slot, pid)
  local name, size = kind .. family, family == '4' and 6 or 18
  local key, last = t.arrays .. name, t[name] - 1
  if last < 0 or slot > last then return end
  local own, moved = read_ids(key .. 'i', slot, last)
  if own ~= pid then return end
  if slot < last then
    call('SETRANGE', key, slot * size, call('GETRANGE', key, last * size, last * size + size - 1))
    call('SETRANGE', key .. 'i', slot * 20, moved)
    call('HSET', P .. 'p:' .. t.tid .. ':' .. to_hex(moved), 'n' .. family, slot)
  end
  t[name] = last
  trim_array(key, last, size)
end
