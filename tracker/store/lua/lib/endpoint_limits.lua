-- endpoint_limits.lua: how many endpoints one network may have in all swarms. After addresses.lua; needs `full`,
-- `max_in_all` and `bound_local`.
--
-- A network is an IPv4 address or a /64; a /24 or a /48 may have ten times as many. `full` lists the networks at their
-- limit (hex, between spaces; false for none). It is read with each batch, so that most joins need no command for it.
local full_before, newly_full = full, {}

local function network_hex(net)
  return (string.gsub(net, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

-- True when no limit holds for the announce. Behind an untrusted proxy all peers seem to have the proxy's address.
local function is_unbounded(r, net)
  return r.unbounded or not bound_local and is_local(net)
end

local function max_entries(net)
  return (#net == 4 or #net == 8) and max_in_all or 10 * max_in_all
end

-- True when the network, or its wide network, is at its limit. Removes a network that is below it again from `full`.
local function is_full(net)
  if not full then return false end
  for _, one in ipairs({ net, string.sub(net, 1, #net == 4 and 3 or 6) }) do
    local entry = ' ' .. network_hex(one) .. ' '
    if string.find(full, entry, 1, true) then
      if (parse_count(call('HGET', P .. 'addresses', one)) or 0) >= max_entries(one) then return true end
      full = string.gsub(full, entry, ' ')
    end
  end
  return false
end

-- True when the announce adds an endpoint to a network at its limit; `old` is the endpoint that it replaces. A peer
-- that starts may take over an endpoint of its network in this swarm: take_endpoint() decides that, by `r.beyond`.
local function is_beyond(t, r, old)
  r.beyond = false
  if not full or old == r.endpoint then return false end
  local net = split_endpoint(r.endpoint)
  if split_endpoint(old) == net or is_unbounded(r, net) or not is_full(net) then return false end
  r.beyond = r.event == 's' and call('HEXISTS', P .. 'addresses:' .. t.ih, net) == 1
  return not r.beyond
end

-- save_network_counts() calls this for each network that has grown.
local function note_full(net, count)
  if count >= max_entries(net) then newly_full[#newly_full + 1] = network_hex(net) end
end

local function save_full()
  for _, entry in ipairs(newly_full) do
    if not (full and string.find(full, ' ' .. entry .. ' ', 1, true)) then full = (full or ' ') .. entry .. ' ' end
  end
  newly_full = {}
  if full == full_before then return end
  if full == ' ' then call('DEL', P .. 'addresses:full') else call('SET', P .. 'addresses:full', full) end
end
