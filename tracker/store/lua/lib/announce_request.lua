-- announce_request.lua: reads an announce that is not a regular one, and authorizes its user. A fragment of
-- announce.lua.

-- The user of a passkey: the id, '' for an anonymous announce, or false and the code of the refusal. The third value is
-- true for an anonymous announce with an unknown passkey; with a refusal it is the operator's reason, if there is one.
-- The fourth holds the fields of the user's row.
local function authorize(passkey, left, event)
  if not accounts or passkey == '' and not required then return '' end
  local u = call('HMGET', P .. 'user:' .. passkey, 'user_id', 'enabled', 'can_leech',
    'upload_multiplier', 'download_multiplier', 'max_downloads')
  if passkey == '' or not u[1] or u[1] == '' then
    if required then return false, 'unknown passkey' end
    return '', nil, true
  end
  if event == 'x' then return u[1], nil, nil, u end -- a goodbye needs no permission
  if u[2] == '0' then return false, 'user disabled', call('HGET', P .. 'user:' .. passkey, 'reason') or nil end
  if u[3] == '0' and left ~= '0' then return false, 'may not leech' end
  return u[1], nil, nil, u
end

-- The same for a `stopped` whose passkey is unknown: the peer itself names its user. The passkey may be that of a user
-- who is deleted, to whom nothing is credited any more, or one that was replaced within the timeout of an announce.
local function authorize_stop(r)
  local tid = call('HGET', P .. 't:' .. r.ih, 'tid')
  local uid = tid and r.passkey ~= '' and call('HGET', P .. 'p:' .. tid .. ':' .. r.pidx, 'user_id')
  local passkey = uid and call('HGET', P .. 'u:' .. uid, 'passkey')
  if not passkey then return end
  if passkey == r.passkey then return uid end
  local v = call('HMGET', P .. 'user:' .. passkey, 'user_id', 'old_passkey', 'rotated')
  if v[1] ~= uid or v[2] ~= r.passkey or now - (tonumber(v[3] or '') or 0) > r.timeout / 1000 then return end
  return authorize(passkey, r.left, 'x')
end

-- The current request, refilled for each announce: a new table for each is slower than filling one.
local request = {}

local COMPLETED_MEMBER = 67 -- 'C'

local function read_request(packed)
  local r, event, with_ids = request
  r.ih, r.pidx, event, with_ids, r.want, r.timeout, r.random, r.uploaded, r.downloaded, r.left, r.endpoint, r.pid,
    r.digest, r.passkey, r.unbounded = struct.unpack('<c40c40BBHI4I4sssBc0c20Bc0Bc0B', packed)
  r.event, r.with_ids, r.may_join = string.lower(string.char(event)), with_ids == 1, event ~= COMPLETED_MEMBER
  r.own_family = with_ids == 2
  r.unbounded, r.announced = r.unbounded == 1, nil
  return r
end

local function refuse(code, reason)
  return { 1, code, reason or '' }
end
