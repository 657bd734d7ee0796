"""Unique users by place and torrent."""

from tracker.store.key_table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:<metric>",
        "STRING",
        "unique users of all time; `<metric>` is `countries.<country>.users`, `cities.<city>.users`, "
        "`postcodes.<postcode>.users`, `torrents.<ih>.users` or `torrents.<ih>.` and one of the first three",
        "for ever; those of a torrent with the torrent",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:<metric>.<month>",
        "STRING",
        "unique users of one month (UTC, `YYYY-MM`)",
        "13 months after its end; those of a torrent at most with the torrent",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:<metric>.<seen>",
        "STRING",
        "when (epoch s) the metric counted this address: `<seen>` is an IPv4 address, an IPv6 /64, or in mode `hashed` 32 hex digits",
        "30 days; the script compares the time it holds, expiry only cleans up",
        "sight.lua, modes exact and hashed",
    ),
    KeySpec(
        "t:hll:<metric>",
        "STRING",
        "HyperLogLog of the addresses of all time",
        "as the figure it estimates",
        "estimate.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:hll:<metric>.<month>",
        "STRING",
        "HyperLogLog of the addresses of one month",
        "as the figure it estimates",
        "estimate.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:i:unique:<scope>:<period>",
        "ZSET",
        "leaderboard of unique users: `<scope>` is countries, cities, postcodes or torrents, `<period>` is all or `YYYY-MM`",
        "all: for ever; a month: 13 months after its end",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:i:unique:torrents.<ih>",
        "ZSET",
        "the places a torrent was seen in, such as `countries.GB`, by unique users of all time",
        "with the torrent",
        "sight.lua, estimate.lua",
    ),
)
