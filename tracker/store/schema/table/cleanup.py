"""Checks for stale keys, by row of the key table, and the keys that ``tracker wipe-stats`` deletes.

A row is checked if a site's own writes, or the removal of a torrent or a project, can leave stale keys of it. Other
keys expire, are written and deleted together by one script, or are repaired by the sweep, by a job or by ``tracker
reindex``.
"""

from typing import NamedTuple

from tracker.store.schema.table import WORK


class Check(NamedTuple):
    """How cleanup.lua finds stale keys, or stale entries of sets."""

    kind: str
    """The description of a finding, for operators."""
    pattern: str = ""
    """A Lua pattern for the key, or for `key entry` to check its entries. What does not match is never stale."""
    needs: str = ""
    """A match is stale without this key, where %1 is its first capture. Or the name of a rule of cleanup.lua."""


_HASH = f"({'%x' * 40})"
_DELETED = "keys of deleted torrents"
_SWARM = Check(_DELETED, f"%l+:{_HASH}.*", "t:%1")
_UNIQUE = Check(_DELETED, f".*torrents%.{_HASH}.*", "t:%1")
_ID = Check(_DELETED, ".*:(%d+)", "torrent_id:%1")
_NAME = Check("indexed names of deleted or renamed torrents", "i:name (.-)\t?(%x*)", "name")
_LISTED = Check("indexed torrents that were deleted", "i:torrent_%l+ (.*)", "torrent_id:%1")
_USER = Check("indexed users who were deleted", "i:user_%l+ .-(%d+)", "u:%1")
_BOARD = Check("leaderboard entries of deleted torrents", f"i:unique:torrents:%S+ {_HASH}", "t:%1")
_PROJECT = Check("keys of deleted projects of work distribution", "w:([^:]+).*", "project")

CHECKS: dict[str, Check] = {
    "t:t:<ih>": Check("unregistered torrents that no sweep visits", "t:(.*)", "torrent"),
    "t:torrent_id:<tid>": Check("torrent ids without a torrent", "torrent_id:(.*)", "torrent_id"),
    **dict.fromkeys(("t:history:<tid>", "t:completed:<tid>"), _ID),
    **dict.fromkeys(("t:tpeers:<ih>", "t:addresses:<ih>"), _SWARM),
    **dict.fromkeys(("t:swarm:<ih>:<array>", "t:swarm:<ih>:<array>i"), _SWARM),
    "t:p:<tid>:<pid>": Check("peers that are in no swarm", "p:(%d+):(.*)", "peer"),
    "t:p:<pid>:torrents": Check("torrents of deleted peers", "p:(%x+):torrents (.*)", "p:%2:%1"),
    "t:i:name": _NAME,
    "t:i:torrent_<value>": _LISTED,
    "t:denied": Check("listed denials that were deleted", "denied (.*)", "deny:%1"),
    **dict.fromkeys(("t:i:user_name", "t:i:user_<total>"), _USER),
    "t:users": Check("listed users who were deleted", "users (.*)", "user:%1"),
    "t:u:<uid>:t:<tid>": _ID,
    # A job drops hit-and-runs on deleted torrents, and keeps their index.
    "t:u:<uid>:<set>": Check("deleted torrents in users' sets", ".*:[aci]%l+ (.*)", "torrent_id:%1"),
    "t:whitelist": Check("listed clients that are not allowed", "whitelist (.*)", "whitelist:%1"),
    **dict.fromkeys(("t:<metric>", "t:<metric>.<month>"), _UNIQUE),
    **dict.fromkeys(("t:hll:<metric>", "t:hll:<metric>.<month>"), _UNIQUE),
    "t:i:unique:torrents.<ih>": _UNIQUE,
    "t:i:unique:<scope>:<period>": _BOARD,
    **{row.pattern: _PROJECT for row in WORK if row.pattern.startswith("t:w:<p>")},
}
"""The check of each row of the key table. For other rows only the type is checked."""

STATISTICS = {
    *("t:stats:<counter>", "t:stats:failures", "t:refused:<reason>", "t:known:", "t:known:dist"),
    *("t:count:<precision>:<name>", "t:dist:<precision>:<name>", "t:history:<tid>"),
    *("t:i:client:<outcome>:<period>", "t:unlisted_clients", "t:work_bytes"),
}
"""Rows of past statistics, which a wipe deletes."""
OF_TORRENTS = ("t:info_hash:<ih>", "t:t:<ih>")
"""Rows whose keys end in the info hash of a torrent; the torrent belongs in the indexes."""
DENIAL = "t:deny:<ih>"
STATE = (b"stats:seeders", b"stats:leechers")
"""Keys of rows in STATISTICS with current values; a wipe keeps them."""
FIRST = (b"known:", b"known:dist")
"""A wipe deletes these first. A counter created meanwhile lists itself in both, so cleanup still finds it."""
