"""Unique users by place and torrent."""

from tracker.store.schema.table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:<metric>",
        "STRING",
        "unique users of all time; `<metric>` is `countries.<country>.users`, "
        "`countries.<country>.cities.<city>.users`, "
        "`countries.<country>.postcodes.<postcode>.users`, `torrents.<ih>.users` or `torrents.<ih>.` and one "
        "of the first three",
        "for ever; those of a torrent with the torrent",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:<metric>.<month>",
        "STRING",
        "unique users of one month (UTC, `YYYY-MM`)",
        "13 months after its end; those of a torrent at most with the torrent",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:<metric>.<seen>",
        "STRING",
        "when (epoch s) the metric counted this address: `<seen>` is an IPv4 address, an IPv6 /64, or in mode "
        "`hashed` 32 hex digits",
        "30 days; the script compares the time it holds, expiry only cleans up",
        "count_unique.lua, modes exact and hashed",
    ),
    KeySpec(
        "t:hll:<metric>",
        "STRING",
        "HyperLogLog of the addresses of all time",
        "as the figure it estimates",
        "estimate_unique.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:hll:<metric>.<month>",
        "STRING",
        "HyperLogLog of the addresses of one month",
        "as the figure it estimates",
        "estimate_unique.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:i:unique:<scope>:<period>",
        "ZSET",
        "leaderboard of unique users: `<scope>` is countries, cities, postcodes or torrents, `<period>` is "
        "all or `YYYY-MM`; "
        "a city or postcode is `<country>/<city>`",
        "all: for ever; a month: 13 months after its end",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:i:unique:torrents.<ih>",
        "ZSET",
        "the places a torrent was seen in, such as `countries.France` and `cities.France/Paris`, by unique "
        "users of all time",
        "with the torrent",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:unique:forgotten",
        "HASH",
        "how many markers were deleted because joins were refused for want of memory, by period (all, `YYYY-MM`): "
        "the figures of that period may be too high by as many in all",
        "until unique users are flushed",
        "forget_markers.lua",
    ),
    KeySpec(
        "t:unique:names",
        "STRING",
        "2 when everything counted under earlier names has the names of this table",
        "for ever",
        "store/stats/place_names.py",
    ),
    KeySpec(
        "t:unique:renaming",
        "STRING",
        "a tracker is renaming what was counted under earlier names",
        "15 s, prolonged while it does",
        "store/stats/place_names.py",
    ),
)
