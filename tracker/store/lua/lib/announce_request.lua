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
  if u[2] == '0' then return false, 'user disabled', call('HGET', P .. 'user:' .. passkey, 'reason') or nil end
  if u[3] == '0' and left ~= '0' and event ~= 'x' then return false, 'may not leech' end
  return u[1], nil, nil, u
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
