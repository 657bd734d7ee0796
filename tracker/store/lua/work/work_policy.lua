#!lua
-- work_policy.lua: brings what a seeding project wants in line with the swarms of these torrents, also downwards. Items
-- that were added by hand stay as they are.
-- KEYS[1]   the prefix
-- ARGV[1]   project   ARGV[2] now (epoch s)   ARGV[3] '1': write nothing   ARGV[4] max items that the policy manages
-- ARGV[5]   where the next run goes on, to be stored ('': not now)
-- ARGV[6..] five each: info hash, chance (0 to 1); the points of its history, the time of the first (epoch s), the
--   average of its seeders
-- Answer    for each change { info hash, reason, copies before, copies now, queue or claimants asked ('': none),
--   average, seeders }; nil when there is no such seeding project
local P, call, project = KEYS[1], redis.call, ARGV[1]
local now, dry, max_managed = tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4])
local MAX_COUNT = 10 ^ 9
--@ include lib/numbers.lua
--@ include lib/work_project.lua
--@ include lib/work_queues.lua
--@ include lib/work_own_queues.lua
--@ include lib/work_enqueue.lua
--@ include lib/work_dequeue.lua
--@ include lib/work_queue_of.lua

local fields = read_project()
if not fields or fields.kind ~= 'seeding' then return nil end
local settings = call('HMGET', W, 'target', 'min_size', 'max_size', 'order')
local policy = {
  target = math.max(1, whole(settings[1] or '3')), min_size = whole(settings[2]), max_size = whole(settings[3]),
  random = settings[4] ~= 'weakest',
}
--@ include lib/work_known.lua
--@ include lib/work_demand.lua
-- A failed command does not undo those before it, so a key of a wrong type fails here.
for _, queue in ipairs({ ':todo', ':todo:secondary', ':todo:redo', ':done' }) do call('ZCARD', W .. queue) end
for _, hash in ipairs({ ':wanted', ':asked', ':holders', ':totals' }) do call('HLEN', W .. hash) end
local managed_key = W .. ':policy'
local managed_count = call('HLEN', managed_key)

local function note_managed(ih, managed, since)
  if dry then return end
  if not since then
    call('HDEL', managed_key, ih)
  elseif since ~= managed then
    call('HSET', managed_key, ih, since)
  end
  managed_count = managed_count + (since and 1 or 0) - (managed and 1 or 0)
end

-- The place keeps its chance while the rest of it is the same.
local function place_of(d, chance, was)
  if policy.random then return was or chance end
  if was and math.floor(tonumber(was)) == d.base then return was end
  return string.format('%.6f', d.base + math.min(0.999999, tonumber(chance)))
end

local function write(ih, d, place, is)
  if is.queue then dequeue_item(ih, is.queue, is.asked, true) end
  if d.copies > 0 then
    enqueue_item(ih, d.queue, place, d.asked)
    call('HSET', W .. ':wanted', ih, d.copies)
    call('ZREM', W .. ':done', ih)
  end
  if d.copies ~= is.copies then call('HINCRBY', W .. ':totals', 'added', d.copies - is.copies) end
end

local function fill(ih, chance, past)
  local managed, is = call('HGET', managed_key, ih), {}
  is.queue, is.place, is.asked = queue_of(ih)
  if is.queue and not managed then return nil end -- added by hand
  if not managed and managed_count >= max_managed then return nil end
  local d = demand(ih, past, managed and managed ~= '0' and tonumber(managed) or nil)
  if not d then return nil end
  is.copies = is.queue and math.max(1, whole(call('HGET', W .. ':wanted', ih) or '1')) or 0
  if d.copies > 0 and is.queue == 'todo:redo' and not d.asked then d.queue = 'todo:redo' end
  if d.asked then check_queues(d.asked) end
  local since = d.since and decimal(d.since) or d.copies > 0 and '0' or nil
  if since or managed then note_managed(ih, managed, since) end
  if d.copies == 0 and not is.queue then return nil end
  local same_queue = is.queue and (d.asked or d.queue) == (is.asked or is.queue)
  local place = d.copies > 0 and place_of(d, chance, same_queue and is.place or nil)
  if same_queue and place == is.place and d.copies == is.copies then return nil end
  if not dry then write(ih, d, place, is) end
  local to = d.copies > 0 and (d.asked or d.queue) or ''
  return { ih, d.reason, is.copies, d.copies, to, string.format('%.3f', d.average), d.seeders }
end

local names = {}
for i = 6, #ARGV, 5 do names[#names + 1] = ARGV[i] end
check_own_queues(unpack(names))
local changes = {}
for i = 6, #ARGV, 5 do
  local past = {
    points = tonumber(ARGV[i + 2]), first = tonumber(ARGV[i + 3]), average = tonumber(ARGV[i + 4]),
  }
  changes[#changes + 1] = fill(ARGV[i], ARGV[i + 1], past)
end
if not dry and ARGV[5] ~= '' then call('HSET', W, 'policy_at', ARGV[5]) end
return changes
