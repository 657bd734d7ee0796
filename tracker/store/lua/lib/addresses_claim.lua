-- addresses_claim.lua: adds the first endpoint of a network in a swarm. After addresses.lua.

-- Entries of one network in a swarm. Further peers of a local network are in the swarm without an entry.
local MAX_ENTRIES = 1024

-- Adds the endpoint of a network that has none in the swarm, and returns nil; else returns the entries it has.
local function claim_network(t, net, rest, pid)
  local key = P .. 'addresses:' .. t.ih
  if call('HSETNX', key, net, rest .. pid) == 0 then return call('HGET', key, net) end
  count_entries(net, 1)
end
