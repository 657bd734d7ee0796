#!lua
-- work_policy.lua: brings what a seeding project wants in line with the demand for these torrents, also downwards.
-- Items that were added by hand stay as they are, and so do those that were claimed or given back since the demand was
-- found.
-- The policy keeps a limited number of items: a torrent shorter of seeders replaces the one with the most.
-- ARGV[1]   project   ARGV[2] max items that the policy keeps
-- ARGV[3]   where the next run goes on, to be stored ('': not now)
-- ARGV[4]   '1': write nothing. Then ARGV[5] and ARGV[6] are how many items the run so far would have added, less those
--   removed, and how many torrents shorter of seeders would have replaced (else 0)
-- ARGV[7..] eight each: info hash, chance (0 to 1), who has claimed it, copies wanted, the base of its place and its
--   need (lowest: neediest), queue or claimants asked, since when claimants are asked (epoch s; '': none are)
-- Answer    for each change { info hash, copies before, copies now, queue or claimants asked ('': none), 1 if it left
--   for a torrent shorter of seeders }; nil when there is no such seeding project
local P, call = KEYS[1], redis.call
local max_kept, dry = tonumber(ARGV[2]), ARGV[4] == '1'
--@ include lib/work_queues.lua

if project.kind ~= 'seeding' then return nil end
local in_random_order = project.order ~= 'weakest'
local needs_key, managed_key = W .. ':needs', W .. ':policy'
local kept, taken_out = call('ZCARD', needs_key) + tonumber(ARGV[5]), tonumber(ARGV[6])
local managed_count = call('HLEN', managed_key)
-- A failed command does not undo those before it, so a key of a wrong type fails here.
call('ZCARD', W .. ':done')
call('HLEN', W .. ':totals')

-- One command for all items costs a fraction of one command each.
local items, wishes, state = {}, {}, {}
for i = 7, #ARGV, 8 do
  items[#items + 1] = ARGV[i]
  wishes[#wishes + 1] = {
    chance = ARGV[i + 1], holders = ARGV[i + 2], copies = tonumber(ARGV[i + 3]), base = tonumber(ARGV[i + 4]),
    need = tonumber(ARGV[i + 5]), to = ARGV[i + 6], since = ARGV[i + 7],
  }
end
if #items > 0 then
  check_own_queues(unpack(items))
  for _, hash in ipairs({ 'policy', 'asked', 'wanted', 'holders' }) do
    state[hash] = call('HMGET', W .. ':' .. hash, unpack(items))
  end
  for _, index in ipairs({ 'todo', 'todo:secondary', 'todo:redo', 'needs' }) do
    state[index] = call('ZMSCORE', W .. ':' .. index, unpack(items))
  end
end

local function state_of(i)
  local is = { managed = state.policy[i], need = state.needs[i] }
  if state.asked[i] then
    is.queue, is.place, is.asked = queue_of(items[i])
  else
    for _, queue in ipairs({ 'todo', 'todo:secondary', 'todo:redo' }) do
      if state[queue][i] then is.queue, is.place = queue, state[queue][i] end
    end
  end
  is.copies = is.queue and math.max(1, whole(state.wanted[i] or '1')) or 0
  return is
end

local changes, done = {}, {} -- `done`: items of this call that are no longer as they were read

local function note_managed(ih, is, since)
  if not dry and not since then
    call('HDEL', managed_key, ih)
  elseif not dry and since ~= is.managed then
    call('HSET', managed_key, ih, since)
  end
  managed_count = managed_count + (since and 1 or 0) - (is.managed and 1 or 0)
end

local function note_need(ih, is, need)
  if not dry and is.need and not need then
    call('ZREM', needs_key, ih)
  elseif not dry and need and need ~= tonumber(is.need) then
    call('ZADD', needs_key, string.format('%.6f', need), ih)
  end
  kept = kept + (need and 1 or 0) - (is.need and 1 or 0)
end

-- Takes the item least short of seeders out of its queue.
local function take_out(ih)
  check_own_queues(ih)
  local queue, _, asked = queue_of(ih)
  local copies = queue and math.max(1, whole(call('HGET', W .. ':wanted', ih) or '1')) or 0
  kept, taken_out, done[ih] = kept - 1, taken_out + 1, true
  if copies > 0 then changes[#changes + 1] = { ih, copies, 0, '', 1 } end
  if dry then return end
  call('ZREM', needs_key, ih)
  call('HDEL', managed_key, ih)
  if queue then dequeue_item(ih, queue, asked, true) end
  if copies > 0 then call('HINCRBY', W .. ':totals', 'added', decimal(-copies)) end
end

-- Whether there is room for an item of this need; the item least short of seeders makes room.
local function make_room(need)
  if kept < max_kept then return true end
  local rank = dry and taken_out or 0
  local last = call('ZRANGE', needs_key, rank, rank, 'REV', 'WITHSCORES')
  if not last[1] or need >= tonumber(last[2]) then return false end
  take_out(last[1])
  return true
end

-- The place keeps its chance while the rest of it is the same.
local function place_of(wish, was)
  if in_random_order then return was or wish.chance end
  if was and math.floor(tonumber(was)) == wish.base then return was end
  return string.format('%.6f', wish.base + math.min(0.999999, tonumber(wish.chance)))
end

local function write(ih, wish, place, is)
  if is.queue then dequeue_item(ih, is.queue, is.asked, true) end
  if wish.copies > 0 then
    enqueue_item(ih, wish.queue, place, wish.asked)
    call('HSET', W .. ':wanted', ih, wish.copies)
    call('ZREM', W .. ':done', ih)
  end
  if wish.copies ~= is.copies then call('HINCRBY', W .. ':totals', 'added', decimal(wish.copies - is.copies)) end
end

local function fill(i)
  local ih, wish, is = items[i], wishes[i], state_of(i)
  if done[ih] or wish.holders ~= (state.holders[i] or '') then return end
  if is.queue and not is.managed then return end -- added by hand
  done[ih] = true
  if not string.find(wish.to, '^todo') and wish.to ~= '' then wish.asked = wish.to end
  if wish.asked then check_queues(wish.asked) end
  wish.queue = is.queue == 'todo:redo' and not wish.asked and is.queue or wish.to
  local same_queue = is.queue and (wish.asked or wish.queue) == (is.asked or is.queue)
  local place, need, left
  if wish.copies > 0 then
    place = place_of(wish, same_queue and is.place or nil)
    need = wish.need + tonumber(place) % 1 -- by chance among those of equal need
    if not is.need and not make_room(need) then
      if not is.managed then return end
      wish.copies, need, left = 0, nil, true
    end
  end
  local since = wish.since ~= '' and wish.since or wish.copies > 0 and '0' or nil
  if wish.copies == 0 and not is.managed and managed_count >= 2 * max_kept then since = nil end
  if since or is.managed then note_managed(ih, is, since) end
  note_need(ih, is, need)
  if wish.copies == 0 and not is.queue then return end
  if same_queue and place == is.place and wish.copies == is.copies then return end
  if not dry then write(ih, wish, place, is) end
  local to = wish.copies > 0 and (wish.asked or wish.queue) or ''
  changes[#changes + 1] = { ih, is.copies, wish.copies, to, left and 1 or 0 }
end

for i = 1, #items do fill(i) end
if not dry and ARGV[3] ~= '' then call('HSET', W, 'policy_at', ARGV[3]) end
return changes
