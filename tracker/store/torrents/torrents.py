"""The register of torrents: what may be announced, what is denied, and in which state each is."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.figures import ranked
from tracker.store.keys import Keys
from tracker.store.listing import Unlisted, fold_name, list_torrents
from tracker.store.scripts import Scripts
from tracker.store.search import Search
from tracker.store.torrent import (
    Denial,
    Peer,
    Point,
    Torrent,
    info_hash_of,
    peer_of,
    point_of,
    text_of,
    torrent_of,
)

__all__ = ["RANKINGS", "Denial", "Peer", "Point", "Torrent", "Torrents"]

RANKINGS = ("seeders", "leechers", "snatches", "score")
"""What torrents are ranked by."""
SEARCHES_AT_ONCE = 2
"""A search may look at very many names; announces come between its calls, but not between those of a hundred of them."""
_TEXT_FIELDS = frozenset({"name", "reason"})
_SETTABLE = _TEXT_FIELDS | {"enabled", "private", "multi_up", "multi_dn"}
_LONGEST_TEXT = 1000
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?", re.ASCII)


class Torrents:
    """The register of one prefix. ``clock`` gives epoch seconds."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, clock: Callable[[], float] = time.time
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    async def add(
        self, info_hash: InfoHash, fields: Mapping[str, str] | None = None, *, reset_score: bool = False
    ) -> tuple[str, bool]:
        """Registers a torrent: (its id, True when it was new). A known one keeps id and figures and gets ``fields``.

        Its score is a figure too, but ``reset_score`` lets it begin anew.
        Raises ClientError for fields that a torrent does not have, and for an id of a site's that cannot be one.
        """
        row = checked_fields(fields or {})
        added = await self._scripts.add([info_hash.hex(), int(self._clock()), *_named(row), *_flat(row)])
        if added is None:
            raise ClientError("this torrent is registered with an id that is not a number: remove it first")
        if reset_score:
            await self._scripts.reset_score([int(self._clock()), added[0]])
        await self._changed(info_hash)
        return added[0].decode(), added[1] == 1

    async def edit(self, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
        """Sets some fields (name, private, enabled, reason, multi_up, multi_dn); raises ClientError for an unknown torrent."""
        row = checked_fields(fields)
        if not row:
            edited = await self._connection.command("EXISTS", self._keys.info_hash(info_hash))
        else:
            edited = await self._scripts.edit([info_hash.hex(), *_named(row), *_flat(row)])
        if not edited:
            raise ClientError("unknown torrent")
        if row:
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
        await self._scripts.deny([info_hash.hex(), int(self._clock()), reason[:_LONGEST_TEXT]])
        await self._changed(info_hash)

    async def allow(self, info_hash: InfoHash) -> bool:
        """Takes a denial back; False when there was none."""
        denied = await self._scripts.allow([info_hash.hex()])
        await self._changed(info_hash)
        return bool(denied)

    async def denials(self, offset: int = 0, count: int = 100) -> list[Denial]:
        """Denied torrents, the last denied first. A denial that a site wrote by itself (`SET t:deny:…`) holds at once, and is
        listed once the sweep has come by its torrent, or `Maintenance.reindex`; one that it deleted is left out here.
        """
        pairs = await self._connection.command(
            "ZRANGE", self._keys.denied(), offset, offset + count - 1, "REV", "WITHSCORES"
        )
        listed = [(info_hash_of(text.encode()), since) for text, since in ranked(pairs)]
        known = [(info_hash, since) for info_hash, since in listed if info_hash is not None]
        if not known:
            return []
        reasons = await self._connection.command("MGET", *(self._keys.deny(i) for i, _ in known))
        gone = [i for (i, _), reason in zip(known, reasons, strict=True) if reason is None]
        rows = [Unlisted(info_hash.hex(), "", b"", b"", True) for info_hash in gone]
        await list_torrents(self._scripts, int(self._clock()), rows)
        return [
            Denial(info_hash, reason.decode("utf-8", "replace"), since)
            for (info_hash, since), reason in zip(known, reasons, strict=True)
            if reason is not None
        ]

    async def denial_count(self) -> int:
        """How many denials ``denials`` has to show."""
        return int(await self._connection.command("ZCARD", self._keys.denied()))

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
        rows = await self._connection.pipeline(*commands) if commands else []
        found = [
            torrent_of(info_hash, text_of(row), *registered)
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
        return int(after), await self.by_ids([i.decode() for i in ids])

    async def count(self) -> int:
        """How many torrents there are to list."""
        return int(await self._connection.command("ZCARD", self._keys.index("seeders")))

    async def top(
        self, figure: str, count: int, offset: int = 0, *, ascending: bool = False
    ) -> list[Torrent]:
        """The torrents with most (``ascending``: least) of a figure, one of RANKINGS. By score only those that have one."""
        if figure not in RANKINGS:
            raise ClientError("torrents are not ranked by this")
        order = () if ascending else ("REV",)
        ids = await self._connection.command(
            "ZRANGE", self._keys.index(figure), offset, offset + count - 1, *order
        )
        return await self.by_ids([i.decode() for i in ids])

    async def search(self, text: str, count: int = 100, cursor: str = "") -> tuple[str, list[Torrent]]:
        """(cursor of the next page, at most ``count`` torrents) that have ``text`` in their name, in whatever case, or
        whose info hash begins with it, in hex; by name, and by info hash. The cursor is '' at the end. No text finds all that
        have a name.

        A page may be short, or empty, before the end. Raises ClientError for a cursor that is none.
        """
        async with self._searches:
            after, found = await Search(self._connection, self._scripts, self._keys, text).page(count, cursor)
        return after, await self._get_all(found) if found else []

    async def history(self, torrent: Torrent) -> list[Point]:
        """What the torrent was like at its last scorings, oldest first; nothing where no history is kept."""
        key = self._keys.history(torrent.torrent_id)
        entries = await self._connection.command("LRANGE", key, 0, -1)
        return [point for entry in entries if (point := point_of(entry)) is not None]

    async def by_ids(self, ids: Sequence[str]) -> list[Torrent]:
        """The torrents of these ids, in their order; what nobody knows is left out."""
        if not ids:
            return []
        hexed = await self._connection.command("MGET", *(self._keys.torrent_id(i) for i in ids))
        return await self._get_all([found for text in hexed if (found := info_hash_of(text)) is not None])

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
        return int(after), [peer_of(p, row) for p, row in zip(peer_ids, rows, strict=True) if row]


def checked_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """As they are stored. Raises ClientError for what a torrent does not have."""
    for name, value in fields.items():
        if name not in _SETTABLE:
            raise ClientError("a torrent has no such field")
        if name in ("enabled", "private") and value not in ("0", "1"):
            raise ClientError("enabled and private are 0 or 1")
        if name.startswith("multi_") and not _is_multiplier(value):
            raise ClientError("a multiplier is a number from 0 to 1000")
    return {name: value[:_LONGEST_TEXT] for name, value in fields.items()}


def _named(row: Mapping[str, str]) -> tuple[int, str]:
    """Whether the fields hold a name, and what it is listed by: what the scripts that set fields want to know."""
    return (1, fold_name(row["name"])) if "name" in row else (0, "")


def _flat(row: Mapping[str, str]) -> list[str]:
    return [part for item in row.items() for part in item]


def _is_multiplier(text: str) -> bool:
    """As the announce script reads numbers: Python's float() takes more than Lua's tonumber()."""
    return _NUMBER.fullmatch(text) is not None and float(text) <= 1000
