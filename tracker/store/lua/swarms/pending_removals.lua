#!lua flags=no-writes
-- pending_removals.lua: lists whose peers are to be removed.
-- ARGV[1]   max torrents
-- Answer    the entries of `removing` (lib/removing.lua), and torrents as `torrent:<info hash>`
local P, found = KEYS[1], {}
local entries = redis.pcall('GET', P .. 'removing')
local torrents = redis.pcall('SRANDMEMBER', P .. 'removing:torrents', ARGV[1])
for entry in string.gmatch(type(entries) == 'string' and entries or '', '%S+') do found[#found + 1] = entry end
for _, ih in ipairs(torrents) do found[#found + 1] = 'torrent:' .. ih end
return found
