-- hit_and_run_rules.lua: when a download becomes a hit-and-run, from ARGV[3]: six doubles, packed (struct,
-- little-endian). Minimum bytes, threshold (s), 1 when only seed time counts, minimum share of the torrent's size,
-- ratio that settles a download (0: none), grace period (s; 0: none).
local hnr_min, hnr_threshold, hnr_by_seed, hnr_share, hnr_ratio, hnr_grace = struct.unpack('<dddddd', ARGV[3])
