-- work_given.lua: with several shards, projects are under the main prefix, and their torrents in shards. Then the
-- caller passes on what work_facts.lua has read in the shards. After `P`.
local at_home = string.find(P, ':{main}:$')

-- The facts in ARGV from `first` on, by the names before them; nil where the torrents are under the same prefix. Those
-- of an unavailable shard are empty.
local function given_facts(first)
  if not at_home then return nil end
  local facts = {}
  for i = first, #ARGV, 2 do
    facts[ARGV[i]] = ARGV[i + 1] ~= '' and cmsgpack.unpack(ARGV[i + 1]) or { away = true }
  end
  return facts
end
