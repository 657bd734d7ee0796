-- picking.lua: which peers an announce is told about. A fragment for announce.lua, after swarm.lua.

-- Cuts the slots that hold `endpoint` out of a window, with their ids: the caller's own, and what it left
-- behind under an older peer id.
local function without(peers, ids, endpoint)
  local size, from = #endpoint, 1
  while true do
    local at = string.find(peers, endpoint, from, true)
    if not at then return peers, ids end
    if (at - 1) % size == 0 then
      local slot = (at - 1) / size
      peers = string.sub(peers, 1, at - 1) .. string.sub(peers, at + size)
      ids = string.sub(ids, 1, slot * 20) .. string.sub(ids, slot * 20 + 21)
      from = at
    else
      from = at + 1
    end
  end
end

-- `slots` slots from `start` on, wrapping around at `n`.
local function slice(key, size, start, slots, n)
  if start + slots <= n then
    return call('GETRANGE', key, start * size, (start + slots) * size - 1)
  end
  return call('GETRANGE', key, start * size, n * size - 1) .. call('GETRANGE', key, 0, (start + slots - n) * size - 1)
end

-- A random window of at most `want` endpoints: one more is read, so that the caller's own can be cut out.
local function window(t, name, size, want, random, mine, with_ids)
  local n, peers, ids = t[name], '', ''
  if n == 0 or want <= 0 then return '', '' end
  local slots = math.min(n, want + 1)
  local start = slots < n and random % n or 0
  peers = slice(t.arrays .. name, size, start, slots, n)
  if with_ids then ids = slice(t.arrays .. name .. 'i', 20, start, slots, n) end
  if mine then peers, ids = without(peers, ids, mine) end
  if #peers > want * size then
    peers, ids = string.sub(peers, 1, want * size), string.sub(ids, 1, want * 20)
  end
  return peers, ids
end

-- Of one family: seeders are told of leechers only, leechers of seeders first.
local function pick_family(t, seeds, leeches, size, want, seeding, random, mine, with_ids)
  local peers, ids = '', ''
  if not seeding then peers, ids = window(t, seeds, size, want, random, mine, with_ids) end
  local left = want - #peers / size
  if left <= 0 or t[leeches] == 0 then return peers, ids end
  local more, more_ids = window(t, leeches, size, left, random, mine, with_ids)
  return peers .. more, ids .. more_ids
end

-- The caller's own family first; the other one fills what is left.
local function pick(t, want, on_v4, seeding, random, mine4, mine6, with_ids)
  local peers4, ids4, peers6, ids6
  if on_v4 then
    peers4, ids4 = pick_family(t, 's4', 'l4', 6, want, seeding, random, mine4, with_ids)
    peers6, ids6 = pick_family(t, 's6', 'l6', 18, want - #peers4 / 6, seeding, random, mine6, with_ids)
  else
    peers6, ids6 = pick_family(t, 's6', 'l6', 18, want, seeding, random, mine6, with_ids)
    peers4, ids4 = pick_family(t, 's4', 'l4', 6, want - #peers6 / 18, seeding, random, mine4, with_ids)
  end
  return peers4, peers6, ids4, ids6
end
