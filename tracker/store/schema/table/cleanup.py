"""Checks for stale keys, by row of the key table, and the keys that ``tracker wipe-stats`` deletes.

A row is checked if a site's own writes, or the removal of a torrent, can leave stale keys of it. Other keys expire, are
written and deleted together by one script, or are repaired by the sweep.
"""

from typing import NamedTuple


class Check(NamedTuple):
    """How cleanup.lua finds stale keys, or stale entries of sets."""

    kind: str
    """The description of a finding, for operators."""
    needs: str = ""
    """A key or an entry is stale if this key does not exist. ``*`` stands for the match of ``part``."""
    part: str = "(.*)"
    """A Lua pattern for a part of the name or entry. A name or entry that does not match is never stale."""
    entries: bool = False
    """Check the entries of the key, not the key."""
    rule: str = "exists"
    """``exists``: check the key in ``needs``. Any other value names a rule of cleanup.lua."""


_MEMBERS = Check("peers and addresses of deleted torrents", "t:*", "(%x+)$")
_ARRAY = Check("arrays without a swarm", "t:*", "^swarm:(%x+)")
_UNIQUE = Check("unique users of deleted torrents", "t:*", f"torrents%.({'%x' * 40})")

CHECKS: dict[str, Check] = {
    "t:t:<ih>": Check("unregistered torrents that no sweep visits", rule="torrent"),
    "t:torrent_id:<tid>": Check("torrent ids without a torrent", rule="torrent_id"),
    "t:history:<tid>": Check("histories without a torrent", "torrent_id:*", "(%d+)$"),
    "t:tpeers:<ih>": _MEMBERS,
    "t:addresses:<ih>": _MEMBERS,
    "t:swarm:<ih>:<array>": _ARRAY,
    "t:swarm:<ih>:<array>i": _ARRAY,
    "t:p:<tid>:<pid>": Check("peers of deleted torrents", "torrent_id:*", "^p:(%d+)"),
    "t:p:<pid>:torrents": Check(
        "torrents listed for peers that left them", entries=True, rule="swarm_of_peer"
    ),
    "t:i:name": Check("indexed names of deleted or renamed torrents", entries=True, rule="name"),
    "t:denied": Check("listed denials that were deleted", "deny:*", entries=True),
    "t:users": Check("listed users who were deleted", "user:*", entries=True),
    "t:u:<uid>:t:<tid>": Check("users' totals on deleted torrents", "torrent_id:*", "(%d+)$"),
    "t:u:<uid>:<set>": Check("deleted torrents in users' sets", "torrent_id:*", entries=True),
    "t:i:hnr": Check("users listed with hit-and-runs who have none", "u:*:hnr", entries=True),
    "t:whitelist": Check("listed clients that are not allowed", "whitelist:*", entries=True),
    "t:<metric>": _UNIQUE,
    "t:<metric>.<month>": _UNIQUE,
    "t:hll:<metric>": _UNIQUE,
    "t:hll:<metric>.<month>": _UNIQUE,
    "t:i:unique:torrents.<ih>": _UNIQUE,
    "t:i:unique:<scope>:<period>": Check(
        "leaderboard entries of deleted torrents", "t:*", f"^({'%x' * 40})$", entries=True
    ),
}
"""By row of the key table. For other rows only the type is checked."""

STATISTICS = frozenset(
    {
        "t:stats:<counter>",
        "t:stats:failures",
        "t:known:",
        "t:known:dist",
        "t:count:<precision>:<name>",
        "t:dist:<precision>:<name>",
        "t:history:<tid>",
        "t:i:client:<outcome>:<period>",
    }
)
"""Rows of past statistics, which a wipe deletes."""
OF_TORRENTS = ("t:info_hash:<ih>", "t:t:<ih>")
"""Rows whose keys end in the info hash of a torrent; the torrent belongs in the indexes."""
DENIAL = "t:deny:<ih>"
STATE = ("stats:seeders", "stats:leechers")
"""Keys of rows in STATISTICS with current values; a wipe keeps them."""
FIRST = ("known:", "known:dist")
"""A wipe deletes these first. A counter created meanwhile lists itself in both, so cleanup still finds it."""
