"""Where the keys of each row of the key table are in a store with several shards. ``tracker reshard`` goes by it."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Literal

from tracker.store.schema.keys import KeySpec
from tracker.store.schema.table import KEYS, WORK

Named = Literal["tid", "ih", "uid:tid", "due"]
"""How an entry names its torrent: it is the torrent's id; it ends in the info hash; it is a user id, a colon and the
torrent's id; it is a peer id of 20 bytes and the torrent's id."""


class Place(Enum):
    MAIN = "under the main prefix"
    COPIED = "under the main prefix, with copies in the shards"
    TORRENT = "in the shard of the torrent that the key names; under the main prefix if it names none"
    SPLIT = "in the shards, each entry in that of its torrent"
    JOINED = "each prefix has a part, or a value of its own"
    DROPPED = "not worth a copy: it is written again, or was for trackers that have ended"


_PLACES: dict[Place, tuple[str, ...]] = {
    Place.MAIN: (
        *(row.pattern for row in WORK),
        *("t:limits", "t:limits:<window>", "t:connectable:<endpoint>"),
        *("t:i:client:<outcome>:<period>", "t:unlisted_clients"),
        *("t:user_id", "t:i:user_name", "t:i:user_<total>"),
        *("t:webhook:<url>", "t:once:<digest>", "t:site"),
        *("t:stats:failures", "t:refused:<reason>", "t:counted:<process>", "t:known:", "t:known:dist"),
        *("t:count:<precision>:<name>", "t:dist:<precision>:<name>"),
        *("t:job", "t:job:<id>", "t:q", "t:q:<queue>:<status>", "t:q:<queue>:running:tokens", "t:q:<queue>:ready"),
        *("t:q:<queue>:delayed", "t:q:<queue>:deadlines", "t:q:<queue>:fingerprints"),
        *("t:q:<queue>:slot", "t:q:<queue>:limits"),
        *("t:admin:link:<digest>", "t:audit", "t:audit:rows"),
        *("t:dht", "t:dht:<node>", "t:dht:<node>:nodes<family>", "t:dht:<node>:hashes"),
    ),
    Place.COPIED: (
        *("t:user:<passkey>", "t:users", "t:upload_multiplier", "t:download_multiplier", "t:groups"),
        *("t:secret", "t:admin:tokens", "t:admin:token:<token>", "t:admin:sessions"),
        *("t:admin:session:<digest>", "t:whitelist:<prefix>", "t:whitelist", "t:denied_clients"),
    ),
    Place.TORRENT: (
        *("t:info_hash:<ih>", "t:torrent_id:<tid>", "t:deny:<ih>", "t:t:<ih>", "t:tpeers:<ih>"),
        *("t:p:<tid>:<pid>", "t:ptimeout:<tid>:<pid>", "t:addresses:<ih>"),
        *("t:swarm:<ih>:<array>", "t:swarm:<ih>:<array>i"),
        *("t:u:<uid>:t:<tid>", "t:completed:<tid>", "t:history:<tid>"),
        *("t:<metric>", "t:<metric>.<month>", "t:<metric>.<seen>"),
        *("t:hll:<metric>", "t:hll:<metric>.<month>", "t:i:unique:torrents.<ih>"),
        *("t:dht:peers:<ih>", "t:dht:peers:<ih>:6"),
    ),
    Place.JOINED: (
        *("t:u:<uid>", "t:i:hnr", "t:deleting", "t:torrent_id", "t:lease", "t:stats:<counter>"),
        *("t:heartbeat", "t:gap", "t:due", "t:addresses", "t:changes", "t:edits", "t:unique:forgotten"),
        *("t:outbox:<minute>", "t:outbox", "t:outbox:waiting"),
    ),
    Place.DROPPED: (
        *("t:leases:<kind>", "t:leases:<kind>:tokens", "t:stats:peers"),
        *("t:registered_by:<address>", "t:addresses:full", "t:removing", "t:removing:torrents"),
        *("t:copies", "t:copies:version", "t:copies:rows", "t:copied", "t:changed"),
        *("t:shards", "t:reshard", "t:layout"),
        *("t:sweeping", "t:updated", "t:ws:processes", "t:replication_id"),
        *("t:indexed", "t:renumber", "t:renumber:changes"),
    ),
}
NAMED_BY: dict[str, Named] = {
    **dict.fromkeys(
        ("t:i:<ranking>", "t:i:torrent_<value>", "t:i:empty", "t:i:processed", "t:i:info_hash", "t:i:dht"), "tid"
    ),
    **dict.fromkeys(("t:p:<pid>:torrents", "t:u:<uid>:<set>", "t:u:<uid>:freeleech"), "tid"),
    **dict.fromkeys(("t:i:name", "t:denied", "t:i:unique:<scope>:<period>", "t:u:<uid>:unregistered"), "ih"),
    "t:i:hnr_pending": "uid:tid",
    "t:due:<deadline>": "due",
}
"""By row that is SPLIT. A leaderboard is split if it is of torrents; others are under the main prefix."""

PLACES: dict[str, Place] = {
    **{pattern: place for place, patterns in _PLACES.items() for pattern in patterns},
    **dict.fromkeys(NAMED_BY, Place.SPLIT),
}
"""By row of the key table."""

TORRENT_ID = "t:torrent_id:<tid>"
TORRENT_IDS_IN: Mapping[str, Literal["entry", "name", "value", "field", "token", "stream"]] = {
    **{row.pattern: "name" for row in KEYS if "<tid>" in row.pattern},
    **{pattern: "entry" for pattern, named in NAMED_BY.items() if named != "ih"},
    "t:info_hash:<ih>": "value",
    "t:t:<ih>": "field",
    "t:u:<uid>": "token",
    "t:changes": "stream",
}
"""By row whose keys name torrents by their ids, where these are."""
PASSKEY, USER, WEBHOOK = "t:user:<passkey>", "t:u:<uid>", "t:webhook:<url>"
CURSORS = {"t:job:<id>": "cursor", "t:w:<p>": "policy_at"}
"""By row, a field with the position of a walk through all torrents, which means something else with other shards."""
COUNTED = {
    "registered": "t:info_hash:<ih>",
    "users": PASSKEY,
    "peers": "t:p:<tid>:<pid>",
    "accounts": "t:u:<uid>:t:<tid>",
}
"""Rows whose number of keys is a figure for operators."""

_HASH = re.compile(rb"[0-9a-f]{40}")
_OF_TORRENT = re.compile(rb"(?:^|:)torrents\.([0-9a-f]{40})\.")
_BOARD = "t:i:unique:<scope>:<period>"


def place_of(row: KeySpec, name: bytes) -> Place:
    """The place of a key of ``row``; ``name`` is without the prefix."""
    if row.pattern == _BOARD and not name.startswith(b"i:unique:torrents:"):
        return Place.MAIN
    return PLACES[row.pattern]


def torrent_in(row: KeySpec, name: bytes) -> tuple[Literal["tid", "ih", ""], bytes]:
    """The torrent that a key of a row in Place.TORRENT names, by its id or its info hash; empty for none."""
    parts = row.pattern.removeprefix("t:").split(":")
    if "<tid>" in parts:
        return "tid", name.split(b":")[parts.index("<tid>")]
    found = _OF_TORRENT.search(name) if "<metric>" in row.pattern else _HASH.search(name)
    if found is None:
        return "", b""
    return "ih", found[found.re.groups]


def torrent_of(named: Named, entry: bytes) -> tuple[Literal["tid", "ih"], bytes]:
    """The torrent of an entry, by its id or its info hash."""
    if named == "ih":
        return "ih", entry[-40:]
    if named == "uid:tid":
        return "tid", entry.rpartition(b":")[2]
    return "tid", entry[20:] if named == "due" else entry
