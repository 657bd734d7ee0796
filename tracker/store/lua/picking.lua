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

-- Seeders are told of leechers only, leechers of seeders first.
local function pick_family(t, family, want, seeding, random, mine, with_ids)
  local size, peers, ids = family == '4' and 6 or 18, '', ''
  if not seeding then peers, ids = window(t, 's' .. family, size, want, random, mine, with_ids) end
  local more, more_ids = window(t, 'l' .. family, size, want - #peers / size, random, mine, with_ids)
  return peers .. more, ids .. more_ids
end

-- The caller's own family first; the other one fills what is left.
local function pick(t, want, on_v4, seeding, random, mine4, mine6, with_ids)
  local first, second = '4', '6'
  if not on_v4 then first, second, mine4, mine6 = '6', '4', mine6, mine4 end
  local peers, ids = pick_family(t, first, want, seeding, random, mine4, with_ids)
  local left = want - #peers / (on_v4 and 6 or 18)
  local others, other_ids = pick_family(t, second, left, seeding, random, mine6, with_ids)
  if on_v4 then return peers, others, ids, other_ids end
  return others, peers, other_ids, ids
end
