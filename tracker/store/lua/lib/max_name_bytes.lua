-- max_name_bytes.lua: how much of a name is indexed: 255 characters of four bytes.
local MAX_NAME_BYTES = 1020
