"""What of each family of keys may be left over, and which check of tidy.lua finds it."""

from typing import NamedTuple


class Check(NamedTuple):
    """``kind`` says to people what was found, ``name`` is the function of tidy.lua."""

    kind: str
    name: str
    entries: bool = False
    """It is about the entries of the key, not about the key."""


_RANKED = Check("entries of rankings without a torrent", "ranked", entries=True)
_ARRAY = Check("arrays without a swarm", "array")
_UNIQUE = Check("unique users of torrents that are gone, and markers without an end", "unique")
_BOARD = Check("leaderboard entries of torrents that are gone", "on_board", entries=True)
_MARKER = Check("markers without an end", "marker")
_QUEUED = Check("queue entries without a job", "queued", entries=True)
_TOKENS = Check("tokens without a lease", "token", entries=True)
_KNOWN = Check("names of counters that have no slices", "known", entries=True)

CHECKS: dict[str, Check] = {
    "t:t:<ih>": Check("torrents that nobody registered and no sweep visits", "torrent"),
    "t:torrent_id:<tid>": Check("torrent ids without a torrent", "torrent_id"),
    "t:history:<tid>": Check("histories without a torrent", "history"),
    "t:tpeers:<ih>": Check("lists of peers without a torrent", "members"),
    "t:swarm:<ih>:<array>": _ARRAY,
    "t:swarm:<ih>:<array>i": _ARRAY,
    "t:p:<tid>:<pid>": Check("peers that are in no swarm", "peer"),
    "t:ptimeout:<tid>:<pid>": Check("timeouts without a peer", "timeout"),
    "t:p:<pid>:torrents": Check("torrents of peers that are not in them", "peer_torrent", entries=True),
    "t:due:<deadline>": _MARKER,
    "t:i:<figure>": _RANKED,
    "t:i:processed": _RANKED,
    "t:i:info_hash": _RANKED,
    "t:i:name": Check("names of torrents that are gone or have another", "named", entries=True),
    "t:denied": Check("listed denials that are none", "denied", entries=True),
    "t:registered_by:<address>": _MARKER,
    "t:limits:<window>": _MARKER,
    "t:counted:<process>": _MARKER,
    "t:users": Check("listed users who are gone", "passkey", entries=True),
    "t:u:<uid>:t:<tid>": Check("users' accounts on torrents that are gone", "account"),
    "t:u:<uid>:<set>": Check("users' torrents that are gone", "of_user", entries=True),
    "t:i:hnr": Check("listed hit and runs of users who have none", "debtor", entries=True),
    "t:whitelist": Check("listed clients that are not allowed", "client", entries=True),
    "t:<metric>": _UNIQUE,
    "t:<metric>.<month>": _UNIQUE,
    "t:<metric>.<seen>": _UNIQUE,
    "t:hll:<metric>": _UNIQUE,
    "t:hll:<metric>.<month>": _UNIQUE,
    "t:i:unique:torrents.<ih>": _UNIQUE,
    "t:i:unique:<scope>:<period>": _BOARD,
    "t:count:<precision>:<name>": Check("counters that nobody cleans", "count"),
    "t:dist:<precision>:<name>": Check("distributions that nobody cleans", "dist"),
    "t:known:": _KNOWN,
    "t:known:dist": _KNOWN,
    "t:outbox:<minute>": Check("figures to send that nobody sends", "minute"),
    "t:outbox": Check("minutes without figures to send", "waiting", entries=True),
    "t:leases:<kind>:tokens": _TOKENS,
    "t:job:<id>": Check("jobs in no queue", "job"),
    "t:q:<queue>:<status>": _QUEUED,
    "t:q:<queue>:ready": _QUEUED,
    "t:q:<queue>:delayed": _QUEUED,
    "t:q:<queue>:deadlines": _QUEUED,
    "t:q:<queue>:fingerprints": Check("fingerprints without a job", "fingerprint", entries=True),
    "t:q:<queue>:running:tokens": _TOKENS,
}
"""By row of the key table. Of rows that are not here only the type is looked at."""

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
"""Rows that only say what was. Wiped, they begin anew."""
OF_TORRENTS = ("t:info_hash:<ih>", "t:t:<ih>")
"""Rows whose keys end in the info hash of a torrent that should be listed."""
DENIAL = "t:deny:<ih>"
STATE = ("stats:seeders", "stats:leechers")
"""Keys of those rows that say what is."""
FIRST = ("known:", "known:dist")
"""They go before the counters: a counter begins anew in both, and none is left that no cleaner knows."""
