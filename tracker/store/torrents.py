"""The register of torrents: what may be announced, what is denied, and in which state each is."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tracker.bittorrent import Endpoint, InfoHash, PeerId
from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

_TEXT_FIELDS = frozenset({"name", "reason"})
_SETTABLE = _TEXT_FIELDS | {"enabled", "private", "multi_up", "multi_dn"}
_LONGEST_TEXT = 1000
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Torrent:
    """A registered torrent and its figures."""

    info_hash: InfoHash
    torrent_id: str
    registered: bool
    name: str = ""
    seeders: int = 0
    leechers: int = 0
    completions: int = 0
    announces: int = 0
    enabled: bool = True
    reason: str = ""
    private: bool = False
    denied: str | None = None
    score: float | None = None
    """None when the torrent is not in the ranking by score."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Everything the torrent's hash holds, as text."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An active peer of a torrent."""

    peer_id: PeerId
    endpoints: tuple[Endpoint, ...]
    seeding: bool
    fields: Mapping[str, str]


class Torrents:
    """The register of one prefix. ``clock`` gives epoch seconds."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, clock: Callable[[], float] = time.time
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock

    async def add(
        self, info_hash: InfoHash, fields: Mapping[str, str] | None = None, *, reset_score: bool = False
    ) -> tuple[str, bool]:
        """Registers a torrent: (its id, True when it was new). A known one keeps id and figures and gets ``fields``.

        Its score is a figure too, but ``reset_score`` lets it begin anew.
        Raises ClientError for fields that a torrent does not have, and for an id of a site's that cannot be one.
        """
        row = _checked(fields or {})
        added = await self._scripts.add([info_hash.hex(), int(self._clock()), *_flat(row)])
        if added is None:
            raise ClientError("this torrent is registered with an id that is not a number: remove it first")
        if reset_score:
            await self._scripts.reset_score([int(self._clock()), added[0]])
        await self._changed(info_hash)
        return added[0].decode(), added[1] == 1

    async def edit(self, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
        """Sets some fields (name, private, enabled, reason, multi_up, multi_dn); raises ClientError for an unknown torrent."""
        if await self._connection.command("GET", self._keys.info_hash(info_hash)) is None:
            raise ClientError("unknown torrent")
        row = _checked(fields)
        if row:
            await self._connection.command("HSET", self._keys.torrent(info_hash), *_flat(row))
            await self._changed(info_hash)

    async def remove(self, info_hash: InfoHash) -> bool:
        """Takes the registration away; False when there was none. Peers in the swarm are reaped as always."""
        arguments: list[str | bytes | int | float] = [info_hash.hex(), int(self._clock())]
        done = int(await self._scripts.remove([*arguments, 0]))
        while done == 3:  # more keys than one call may delete
            done = int(await self._scripts.remove([*arguments, 1]))
        await self._changed(info_hash)
        return done > 0

    async def deny(self, info_hash: InfoHash, reason: str) -> None:
        """Forbids a torrent, registered or not, from the very next announce. ``reason`` is shown to its peers."""
        await self._connection.command("SET", self._keys.deny(info_hash), reason[:_LONGEST_TEXT])
        await self._changed(info_hash)

    async def allow(self, info_hash: InfoHash) -> bool:
        """Takes a denial back; False when there was none."""
        denied = bool(await self._connection.command("DEL", self._keys.deny(info_hash)))
        await self._changed(info_hash)
        return denied

    async def _changed(self, info_hash: InfoHash) -> None:
        await self._connection.command("PUBLISH", self._keys.channel("torrents"), info_hash.hex())

    async def get(self, info_hash: InfoHash) -> Torrent | None:
        """A torrent that is registered, denied or still has peers; None for any other."""
        found = await self._get_all([info_hash])
        return found[0] if found else None

    async def _get_all(self, info_hashes: Sequence[InfoHash]) -> list[Torrent]:
        keys = self._keys
        commands: list[tuple[str, ...]] = []
        for info_hash in info_hashes:
            commands.append(("MGET", keys.info_hash(info_hash), keys.deny(info_hash)))
            commands.append(("HGETALL", keys.torrent(info_hash)))
        rows = await self._connection.pipeline(*commands)
        found = [
            _torrent(info_hash, _text(row), *registered)
            for info_hash, registered, row in zip(info_hashes, rows[::2], rows[1::2], strict=True)
            if row or any(value is not None for value in registered)
        ]
        if not found:
            return []
        ids = (torrent.torrent_id for torrent in found)
        scores = await self._connection.command("ZMSCORE", keys.index("score"), *ids)
        return [
            torrent if score is None else replace(torrent, score=float(score))
            for torrent, score in zip(found, scores, strict=True)
        ]

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[Torrent]]:
        """(next cursor, about ``count`` torrents) in no order; cursor 0 begins and ends. One may come twice."""
        after, flat = await self._connection.command(
            "ZSCAN", self._keys.index("seeders"), cursor, "COUNT", count
        )
        ids = [pair[0] for pair in flat] if flat and isinstance(flat[0], tuple | list) else flat[::2]
        return int(after), await self._by_ids([i.decode() for i in ids])

    async def top(self, figure: str, count: int, offset: int = 0) -> list[Torrent]:
        """The torrents with most ``seeders``, ``leechers`` or ``snatches``, or the highest ``score``."""
        ids = await self._connection.command(
            "ZRANGE", self._keys.index(figure), offset, offset + count - 1, "REV"
        )
        return await self._by_ids([i.decode() for i in ids])

    async def _by_ids(self, ids: list[str]) -> list[Torrent]:
        if not ids:
            return []
        hashes = await self._connection.command("MGET", *(self._keys.torrent_id(i) for i in ids))
        return await self._get_all(
            [InfoHash(bytes.fromhex(info_hash.decode())) for info_hash in hashes if info_hash]
        )

    async def peers(self, torrent: Torrent, cursor: int = 0, count: int = 100) -> tuple[int, list[Peer]]:
        """(next cursor, about ``count`` active peers) in no order; cursor 0 begins and ends."""
        after, ids = await self._connection.command(
            "SSCAN", self._keys.swarm_peers(torrent.info_hash), cursor, "COUNT", count
        )
        peer_ids = [PeerId(bytes.fromhex(i.decode())) for i in ids]
        if not peer_ids:
            return int(after), []
        rows = await self._connection.pipeline(
            *(("HGETALL", self._keys.peer(torrent.torrent_id, p)) for p in peer_ids)
        )
        return int(after), [_peer(p, row) for p, row in zip(peer_ids, rows, strict=True) if row]


def _checked(fields: Mapping[str, str]) -> dict[str, str]:
    for name, value in fields.items():
        if name not in _SETTABLE:
            raise ClientError("a torrent has no such field")
        if name in ("enabled", "private") and value not in ("0", "1"):
            raise ClientError("enabled and private are 0 or 1")
        if name.startswith("multi_") and not _is_multiplier(value):
            raise ClientError("a multiplier is a number from 0 to 1000")
    return {name: value[:_LONGEST_TEXT] for name, value in fields.items()}


def _flat(row: Mapping[str, str]) -> list[str]:
    return [part for item in row.items() for part in item]


def _is_multiplier(text: str) -> bool:
    """As the announce script reads numbers: Python's float() takes more than Lua's tonumber()."""
    return _NUMBER.fullmatch(text) is not None and float(text) <= 1000


def _text(row: Any) -> dict[str, str]:
    if isinstance(row, list):
        row = dict(zip(row[::2], row[1::2], strict=True))
    return {k.decode(): v.decode("utf-8", "replace") for k, v in row.items()}


def _torrent(
    info_hash: InfoHash, fields: dict[str, str], torrent_id: bytes | None, denied: bytes | None
) -> Torrent:
    def number(name: str) -> int:
        text = fields.get(name, "0")
        return int(text) if text.isdigit() else 0

    return Torrent(
        info_hash=info_hash,
        torrent_id=fields.get("tid") or (torrent_id.decode() if torrent_id else ""),
        registered=torrent_id is not None,
        name=fields.get("name", ""),
        seeders=number("seeders"),
        leechers=number("leechers"),
        completions=number("snatches"),
        announces=number("announces"),
        enabled=fields.get("enabled") != "0",
        reason=fields.get("reason", ""),
        private=fields.get("private") == "1",
        denied=denied.decode("utf-8", "replace") if denied is not None else None,
        fields=fields,
    )


def _peer(peer_id: PeerId, row: Any) -> Peer:
    if isinstance(row, list):
        row = dict(zip(row[::2], row[1::2], strict=True))
    packed = row.get(b"endpoints", b"")
    v4 = packed[:6] if len(packed) in (6, 24) else b""
    v6 = packed[-18:] if len(packed) >= 18 else b""
    endpoints = tuple(Endpoint(e) for e in (v4, v6) if e)
    seeding = row.get(b"left") == b"0" and row.get(b"paused") != b"1"
    hidden = {b"endpoints", b"key"}
    return Peer(peer_id, endpoints, seeding, _text({k: v for k, v in row.items() if k not in hidden}))
