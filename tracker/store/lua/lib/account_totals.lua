-- account_totals.lua: the totals of a user on a torrent that decide about a hit-and-run.
--@ include lib/changes.lua
--@ include lib/hit_and_runs.lua

local function total(text)
  local n = tonumber(text or '') or 0
  return n > 0 and n or 0
end

-- Nil when the user has no account there, or one of a wrong type.
local function load_totals(uid, tid)
  local v = redis.pcall('HMGET', P .. 'u:' .. uid .. ':t:' .. tid,
    'uploaded', 'downloaded', 'total_time', 'seed_time', 'peers', 'extra_up', 'extra_dn')
  if v.err or not (v[2] or v[5]) then return end
  return {
    uid = uid, tid = tid, uploaded = total(v[1]), downloaded = total(v[2]), total_time = total(v[3]),
    seed_time = total(v[4]), peers = total(v[5]), extra_up = v[6] or 0, extra_dn = v[7] or 0,
  }
end
