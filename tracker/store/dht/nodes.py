"""What a node of the DHT keeps for its next start, and shows meanwhile. Its table itself is in memory only. A site may
write these keys too, so a value may be invalid."""

import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash
from tracker.errors import Conflict
from tracker.store.dht.torrents import DhtTorrents, Participation
from tracker.store.schema.lenient_numbers import hash_of, json_object, text_of, whole
from tracker.store.sharding.shards import Part

FAMILIES = (4, 6)
START_SECONDS = 30
"""A node needs so long to find others."""
ANSWER_SECONDS = 60
"""A node without an answer for longer is down. While nothing else is asked, others are pinged every 30 s."""
STOPPED_SECONDS = 30
"""A node whose status is older has stopped."""
LIFETIME_SECONDS = 7 * 86400
MAX_NODES = 2000
"""Saved nodes of each family."""
MAX_STATUSES = 100
MAX_HASHES = 4000
"""Saved hashes of a node: 2,000 of each family."""
HASHES_SECONDS = 120
"""How long saved hashes are shown. The node itself forgets them when it stops."""
LENGTHS = {4: 26, 6: 38}
"""Bytes of a packed node, by family."""
_NAME = re.compile(r"[-.0-9A-Za-z]{1,64}", re.ASCII)
_HASH = struct.Struct(">20sHHI")
_MAX_COUNT = 0xFFFF
_ID = re.compile(r"[0-9a-f]{40}")
_MAX_NAMES = 100
_PARTICIPATION = ("registered", "looked_at", "part", "unknown")
_COUNTS = ("hashes", "peers", "packets_in", "packets_out", "bytes_in", "bytes_out")

State = Literal["starting", "up", "down", "stopped"]
Mode = Literal["public", "all", "any"]
_MODES: dict[str, Mode] = {"all": "all", "any": "any"}


def is_name(name: str) -> bool:
    """Whether a node may have this name: host names do."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a node says about itself every few seconds, for people: the hash ``t:dht:<node>``. Times are epoch seconds.
    Packets, bytes and lookups count since ``started``."""

    name: str
    mode: Mode  # which torrents take part: the setting ``TRACKER_DHT__TORRENTS``
    started: int
    saved: int  # when the node wrote this
    last_answer: int | None = None  # when another node last answered
    ids: Mapping[int, bytes] = field(default_factory=dict)  # by address family: 4 and 6
    externals: Mapping[int, str] = field(default_factory=dict)  # this host's addresses as others see them, by family
    buckets: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Nodes by family and bucket, without empty buckets."""
    hashes: int = 0  # torrents that other nodes announced to this one
    peers: int = 0  # their peers
    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # packets by reason
    lookups: Mapping[str, int] = field(default_factory=dict)  # lookups of torrents by outcome: answered, unanswered
    participation: Participation | None = None  # None until it has been counted

    def nodes(self, family: int) -> int:
        """Known nodes of an address family."""
        return sum(self.buckets.get(family, {}).values())

    def state(self, now: float) -> State:
        """``now``: epoch seconds."""
        if now - self.saved > STOPPED_SECONDS:
            return "stopped"
        return state_of(self.started, self.last_answer, self.saved)


def state_of(started: float, last_answer: float | None, now: float) -> Literal["starting", "up", "down"]:
    """The state of a running node. All times are of one clock."""
    if last_answer is not None and now - last_answer <= ANSWER_SECONDS:
        return "up"
    return "starting" if now - started < START_SECONDS else "down"


@dataclass(frozen=True, slots=True)
class SavedNode:
    """Dictionaries are by family: 4 and 6."""

    ids: Mapping[int, bytes] = field(default_factory=dict)
    externals: Mapping[int, str] = field(default_factory=dict)
    nodes: dict[int, bytes] = field(default_factory=dict)  # packed


class AnnouncedHash(NamedTuple):
    """A torrent that other nodes announced to a node of the tracker."""

    info_hash: InfoHash
    seeders: int
    peers: int  # with seeders
    announced_at: int  # epoch seconds of the last announce


class DhtNodes(Part):
    async def save_status(self, status: NodeStatus) -> None:
        """Replaces the status of this name. Raises StoreUnavailable."""
        assert is_name(status.name)
        fields = fields_of(status)
        key = self._keys.dht_node(status.name)
        pairs = [part for item in fields.items() if item[1] is not None for part in item]
        absent = [field for field, value in fields.items() if value is None]
        commands: list[tuple[Any, ...]] = [
            ("HSET", key, *pairs),
            ("SADD", self._keys.dht_nodes(), status.name),
            ("EXPIRE", key, LIFETIME_SECONDS),
        ]
        if absent:
            commands.append(("HDEL", key, *absent))
        answers = await self._connection.pipeline(*commands)
        if isinstance(answers[0], RedisError):  # a key of another type
            await self._connection.pipeline(("DEL", key), *commands)

    async def save_tables(self, name: str, nodes: Mapping[int, bytes]) -> None:
        """Replaces the packed nodes that were saved under this name, except where none are known now. Raises
        StoreUnavailable."""
        assert is_name(name)
        commands: list[tuple[Any, ...]] = [("SADD", self._keys.dht_nodes(), name)]
        for family, length in LENGTHS.items():
            packed = nodes.get(family, b"")[: MAX_NODES * length]
            if packed:
                table = self._keys.dht_table(name, family)
                commands.append(("SET", table, packed, "EX", LIFETIME_SECONDS))
        await self._connection.pipeline(*commands)

    async def save_hashes(self, name: str, hashes: Iterable[AnnouncedHash]) -> None:
        """Replaces what other nodes announced to this one. Raises StoreUnavailable."""
        assert is_name(name)
        packed = b"".join(
            _HASH.pack(info_hash, min(seeders, _MAX_COUNT), min(peers, _MAX_COUNT), at)
            for info_hash, seeders, peers, at in hashes
        )
        key = self._keys.dht_hashes(name)
        await self._connection.pipeline(
            ("SET", key, packed[: MAX_HASHES * _HASH.size], "EX", HASHES_SECONDS) if packed else ("DEL", key)
        )

    async def hashes(self, near: InfoHash | None, offset: int, count: int) -> tuple[int, list[AnnouncedHash]]:
        """How many torrents other nodes announced to all nodes on this store, and some of them: those nearest to
        ``near`` first, else those with most peers. Of a torrent that several nodes know, the one with most peers.
        Raises StoreUnavailable."""
        names = (await self.names())[:MAX_STATUSES]
        saved = await self._connection.pipeline(*(("GET", self._keys.dht_hashes(name)) for name in names))
        rows = sorted(
            (each for packed in saved for each in _hashes(packed)), key=lambda row: (-row.peers, row.info_hash)
        )
        found = {each.info_hash: each for each in reversed(rows)}.values()
        if near is None:
            return len(found), list(reversed(found))[offset : offset + count]
        target = int.from_bytes(near, "big")
        nearest = sorted(found, key=lambda each: int.from_bytes(each.info_hash, "big") ^ target)
        return len(found), nearest[offset : offset + count]

    async def names(self) -> list[str]:
        """The names of all nodes that used this store, sorted. Raises StoreUnavailable."""
        found = await self._connection.command("SMEMBERS", self._keys.dht_nodes())
        return sorted(text for each in found if is_name(text := each.decode("latin-1")))

    async def status(self, name: str) -> NodeStatus | None:
        """The status of one node; ``None`` where it has expired. Raises StoreUnavailable."""
        (row,) = await self._connection.pipeline(("HGETALL", self._keys.dht_node(name)))
        return status_of(name, row)

    async def statuses(self) -> list[NodeStatus]:
        """The status of every node that ran in the last 7 days, by name, at most MAX_STATUSES. Raises
        StoreUnavailable."""
        names = (await self.names())[:MAX_STATUSES]
        rows = await self._connection.pipeline(*(("HGETALL", self._keys.dht_node(name)) for name in names))
        found = (status_of(name, row) for name, row in zip(names, rows, strict=True))
        return [status for status in found if status is not None]

    async def check_lookup(self, torrents: DhtTorrents, info_hash: InfoHash, now: float) -> None:
        """Raises Conflict where no node runs, and for a torrent that does not take part. Raises StoreUnavailable."""
        modes = {status.mode for status in await self.statuses() if status.state(now) != "stopped"}
        if not modes:
            raise Conflict("no tracker on this store runs a node of the DHT (TRACKER_DHT__ENABLED)")
        if await torrents.no_longer_part([info_hash], all_torrents="all" in modes):
            raise Conflict("this torrent does not take part in the DHT, see docs/dht.md")

    async def load(self, name: str) -> SavedNode:
        """What was saved. Damaged or foreign values are left out. Raises StoreUnavailable."""
        assert is_name(name)
        row, *tables = await self._connection.pipeline(
            ("HGETALL", self._keys.dht_node(name)), *(("GET", self._keys.dht_table(name, family)) for family in LENGTHS)
        )
        known = status_of(name, row)
        return SavedNode(
            known.ids if known else {},
            known.externals if known else {},
            {
                family: packed[: MAX_NODES * length]
                for (family, length), packed in zip(LENGTHS.items(), tables, strict=True)
                if isinstance(packed, bytes) and packed and len(packed) % length == 0
            },
        )


def _hashes(packed: object) -> list[AnnouncedHash]:
    """None of a damaged or foreign value."""
    if not isinstance(packed, bytes) or len(packed) % _HASH.size:
        return []
    rows = _HASH.iter_unpack(packed[: MAX_HASHES * _HASH.size])
    return [AnnouncedHash(InfoHash(info_hash), *numbers) for info_hash, *numbers in rows]


def fields_of(status: NodeStatus) -> dict[str, str | int | None]:
    """The fields of the hash; ``None`` for one that does not apply."""
    counted = status.participation
    fields: dict[str, str | int | None] = {
        **{name: getattr(status, name) for name in ("mode", "started", "saved", "last_answer", *_COUNTS)},
        "dropped": json.dumps(dict(status.dropped), sort_keys=True),
        "lookups": json.dumps(dict(status.lookups), sort_keys=True),
        **{name: None if counted is None else getattr(counted, name) for name in _PARTICIPATION},
    }
    for family in FAMILIES:
        id, buckets = status.ids.get(family), sorted(status.buckets.get(family, {}).items())
        text = " ".join(f"{bucket}:{nodes}" for bucket, nodes in buckets if nodes)
        fields |= {
            f"id{family}": None if id is None else id.hex(),
            f"external{family}": status.externals.get(family),
            f"nodes{family}": None if id is None else status.nodes(family),
            f"buckets{family}": None if id is None else text,
        }
    return fields


def status_of(name: str, row: list[bytes] | RedisError) -> NodeStatus | None:
    """``row``: what ``fields_of`` made, fields and values in turn; an error for a key of another type. Damaged values
    are left out; ``None`` if there is nothing."""
    fields = text_of(hash_of(row))
    if not fields:
        return None

    def number(field: str) -> int:
        return whole(fields.get(field, "").encode())

    ids = {family: text for family in FAMILIES if _ID.fullmatch(text := fields.get(f"id{family}", ""))}
    return NodeStatus(
        name=name,
        mode=_MODES.get(fields.get("mode", ""), "public"),
        started=number("started"),
        saved=number("saved"),
        last_answer=number("last_answer") or None,
        ids={family: bytes.fromhex(text) for family, text in ids.items()},
        externals={
            family: text for family in FAMILIES if (text := fields.get(f"external{family}", "")) and text.isascii()
        },
        buckets={family: _read_buckets(fields.get(f"buckets{family}", "")) for family in ids},
        **{field: number(field) for field in _COUNTS},
        dropped=_read_counts(fields.get("dropped", "")),
        lookups=_read_counts(fields.get("lookups", "")),
        participation=Participation(*map(number, _PARTICIPATION)) if "registered" in fields else None,
    )


def _read_buckets(text: str) -> dict[int, int]:
    """``0:80 1:79``: bucket and nodes."""
    found = (re.fullmatch(r"([0-9]{1,3}):([0-9]{1,9})", word, re.ASCII) for word in text.split()[:160])
    return {int(match[1]): int(match[2]) for match in found if match is not None}


def _read_counts(text: str) -> dict[str, int]:
    found = json_object(text) or {}
    return {
        name: number for name, number in list(found.items())[:_MAX_NAMES] if type(number) is int and 0 <= number < 2**53
    }
