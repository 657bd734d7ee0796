"""Unique users by place and torrent."""

from tracker.store.schema.keys import SCOPES, KeySpec

_IN_COUNTRIES = ", ".join(f"`countries.<country>.{scope}.<place>.users`" for scope in SCOPES[1:])
ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:<metric>",
        "STRING",
        "unique users of all time. `<metric>` is `countries.<country>.users`, "
        f"{_IN_COUNTRIES}, `torrents.<ih>.users`, or `torrents.<ih>.` followed by one of these for places",
        "permanent; those of a torrent until it is deleted",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:<metric>.<month>",
        "STRING",
        "unique users of one month (UTC, `YYYY-MM`)",
        "until 13 months after its end; those of a torrent at most until it is deleted",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:<metric>.<seen>",
        "STRING",
        "when the metric counted this address (epoch s). `<seen>` is an IPv4 address or an IPv6 /64; in mode "
        "`hashed` 32 hex digits",
        "30 days. The script compares the stored time; expiry only removes the key",
        "count_unique.lua, modes exact and hashed",
    ),
    KeySpec(
        "t:hll:<metric>",
        "STRING",
        "HyperLogLog of the addresses of all time",
        "as long as the count it estimates",
        "estimate_unique.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:hll:<metric>.<month>",
        "STRING",
        "HyperLogLog of the addresses of one month",
        "as long as the count it estimates",
        "estimate_unique.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:i:unique:<scope>:<period>",
        "ZSET",
        f"leaderboard of unique users. `<scope>` is {', '.join(SCOPES)} or torrents, `<period>` is all or "
        "`YYYY-MM`. A place in a country is `<country>/<place>`",
        "all: permanent; a month: until 13 months after its end",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:i:unique:torrents.<ih>",
        "ZSET",
        "places of a torrent's users, such as `countries.France` and `cities.France/Paris`; score: unique users of "
        "all time",
        "until the torrent is deleted",
        "count_unique.lua, estimate_unique.lua",
    ),
    KeySpec(
        "t:unique:forgotten",
        "HASH",
        "period (all, `YYYY-MM`) -> number of markers deleted because memory was full. The counts of the period may "
        "be too high by at most this number in total",
        "until unique users are flushed",
        "forget_markers.lua",
    ),
)
