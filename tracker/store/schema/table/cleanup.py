"""What may be stale in the store, by row of the key table, and which keys ``tracker wipe-stats`` deletes.

A row is checked when a site's own writes, or the removal of a torrent, can leave something of it behind. Other keys are
written and deleted together by one script, expire, or are repaired by the sweep.
"""

from typing import NamedTuple


class Check(NamedTuple):
    """How cleanup.lua finds stale keys, or stale entries of sets."""

    kind: str
    """What is found, as operators read it."""
    needs: str = ""
    """The key without which a key or an entry is stale; * stands for what ``part`` finds."""
    part: str = "(.*)"
    """A Lua pattern for a part of the name, or of the entry; without that part nothing is stale."""
    entries: bool = False
    """Check the entries of the key, not the key."""
    rule: str = "exists"
    """``exists``: look for the key in ``needs``; else a rule of cleanup.lua."""


_MEMBERS = Check("peers and addresses of torrents that are gone", "t:*", "(%x+)$")
_ARRAY = Check("arrays without a swarm", "t:*", "^swarm:(%x+)")
_UNIQUE = Check("unique users of torrents that are gone", "t:*", f"torrents%.({'%x' * 40})")

CHECKS: dict[str, Check] = {
    "t:t:<ih>": Check("torrents that nobody registered and no sweep visits", rule="torrent"),
    "t:torrent_id:<tid>": Check("torrent ids without a torrent", rule="torrent_id"),
    "t:history:<tid>": Check("histories without a torrent", "torrent_id:*", "(%d+)$"),
    "t:tpeers:<ih>": _MEMBERS,
    "t:addresses:<ih>": _MEMBERS,
    "t:swarm:<ih>:<array>": _ARRAY,
    "t:swarm:<ih>:<array>i": _ARRAY,
    "t:p:<tid>:<pid>": Check("peers of torrents that are gone", "torrent_id:*", "^p:(%d+)"),
    "t:p:<pid>:torrents": Check("torrents of peers that left them", entries=True, rule="swarm_of_peer"),
    "t:i:name": Check("names of torrents that are gone or renamed", entries=True, rule="name"),
    "t:denied": Check("listed denials without a denial", "deny:*", entries=True),
    "t:users": Check("listed users who are gone", "user:*", entries=True),
    "t:u:<uid>:t:<tid>": Check("users' accounts on torrents that are gone", "torrent_id:*", "(%d+)$"),
    "t:u:<uid>:<set>": Check("users' torrents that are gone", "torrent_id:*", entries=True),
    "t:i:hnr": Check("listed hit-and-runs of users who have none", "u:*:hnr", entries=True),
    "t:whitelist": Check("listed clients that are not allowed", "whitelist:*", entries=True),
    "t:<metric>": _UNIQUE,
    "t:<metric>.<month>": _UNIQUE,
    "t:hll:<metric>": _UNIQUE,
    "t:hll:<metric>.<month>": _UNIQUE,
    "t:i:unique:torrents.<ih>": _UNIQUE,
    "t:i:unique:<scope>:<period>": Check(
        "leaderboard entries of torrents that are gone", "t:*", f"^({'%x' * 40})$", entries=True
    ),
}
"""By row of the key table. Of other rows only the type is checked."""

STATISTICS = frozenset(
    {
        "t:stats:<figure>",
        "t:stats:failures",
        "t:known:",
        "t:known:dist",
        "t:count:<precision>:<name>",
        "t:dist:<precision>:<name>",
        "t:history:<tid>",
        "t:i:client:<outcome>:<period>",
    }
)
"""Rows of statistics of the past, which restart from nothing after a wipe."""
OF_TORRENTS = ("t:info_hash:<ih>", "t:t:<ih>")
"""Rows whose keys end in the info hash of a torrent that should be listed."""
DENIAL = "t:deny:<ih>"
STATE = ("stats:seeders", "stats:leechers")
"""Keys of rows in STATISTICS that hold the present."""
FIRST = ("known:", "known:dist")
"""Deleted before the counters: a new counter enters itself in both, so no counter is left that is never cleaned."""
