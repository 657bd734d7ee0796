-- picking.lua: which peers an announce is told about, and its answer. A fragment for announce.lua, after `call`.

-- Cuts the slots that hold `endpoint` out of a window, from the one found at `at` on, with their ids: the caller's own, and what
-- it left behind under an older peer id.
local function without(peers, ids, endpoint, at)
  local size = #endpoint
  while at do
    if (at - 1) % size == 0 then
      local slot = (at - 1) / size
      peers = sub(peers, 1, at - 1) .. sub(peers, at + size)
      ids = sub(ids, 1, slot * 20) .. sub(ids, slot * 20 + 21)
    else
      at = at + 1
    end
    at = find(peers, endpoint, at, true)
  end
  return peers, ids
end

-- `slots` of the `n` slots of an array, from a random one on, wrapping around; all of them when there are no more.
local function window(key, size, n, slots, random)
  if n <= slots then return call('GETRANGE', key, 0, n * size - 1) end
  local start = random % n
  if start + slots <= n then return call('GETRANGE', key, start * size, (start + slots) * size - 1) end
  return call('GETRANGE', key, start * size, n * size - 1) .. call('GETRANGE', key, 0, (start + slots - n) * size - 1)
end

-- At most `want` endpoints of an array, none of them the caller's own. Where that is expected (`spare` 1), one more is read.
local function take(key, size, n, want, spare, random, mine, with_ids)
  local peers, ids = window(key, size, n, want + spare, random), ''
  if with_ids then ids = window(key .. 'i', 20, n, want + spare, random) end
  local at = mine and find(peers, mine, 1, true)
  if at then peers, ids = without(peers, ids, mine, at) end
  if #peers > want * size then return sub(peers, 1, want * size), sub(ids, 1, want * 20) end
  return peers, ids
end

-- Of one family: `s` seeders first, then of `l` leechers. The caller may stand among the latter.
local function pick(arrays, family, size, s, l, want, random, mine, with_ids)
  local peers, ids = '', ''
  if want <= 0 then return peers, ids end
  if s > 0 then peers, ids = take(arrays .. 's' .. family, size, s, want, 0, random, mine, with_ids) end
  if l == 0 or #peers >= want * size then return peers, ids end
  local more, more_ids = take(arrays .. 'l' .. family, size, l, want - #peers / size, 1, random, mine, with_ids)
  if peers == '' then return more, more_ids end
  return peers .. more, ids .. more_ids
end

-- The answer to an announce: what is said of the swarm (`head`), then the peers. Of the caller's own family first; the
-- other one fills what is left. `s4` to `l6` are the lengths of the arrays; seeders are told of leechers only, so for them the
-- first two are 0.
local function answer(head, arrays, s4, s6, l4, l6, want, random, with_ids, on_v4, mine4, mine6)
  local peers4, ids4, peers6, ids6
  if on_v4 then
    peers4, ids4 = pick(arrays, '4', 6, s4, l4, want, random, mine4, with_ids)
    if s6 + l6 == 0 and not with_ids then return head .. peers4 end
    peers6, ids6 = pick(arrays, '6', 18, s6, l6, want - #peers4 / 6, random, mine6, with_ids)
  else
    peers6, ids6 = pick(arrays, '6', 18, s6, l6, want, random, mine6, with_ids)
    peers4, ids4 = pick(arrays, '4', 6, s4, l4, want - #peers6 / 18, random, mine4, with_ids)
  end
  if peers6 == '' and not with_ids then return head .. peers4 end
  return string.upper(head) .. struct.pack('<HHH', #peers4, #peers6, #ids4) .. peers4 .. peers6 .. ids4 .. ids6
end
