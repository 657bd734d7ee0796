"""The register of torrents: registrations, denials, statistics and peers."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import ClientError
from tracker.names import clean_name, fold_name
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked, score
from tracker.store.schema.multipliers import RuleChange, checked_multipliers, has_changed
from tracker.store.torrents.name_index import Unlisted, list_torrents
from tracker.store.torrents.records import (
    MAX_SIZE,
    Denial,
    Peer,
    Point,
    StoredTorrent,
    Torrent,
    checked_labels,
    hash_of,
    info_hash_of,
    peer_of,
    point_of,
    size_of,
)
from tracker.store.torrents.search import Search

__all__ = ["RANKINGS", "Denial", "Peer", "Point", "Torrent", "Torrents"]

RANKINGS = ("seeders", "leechers", "snatches", "score")
"""Values that torrents are ranked by."""
MAX_COMPLETERS = 20
SEARCHES_AT_ONCE = 2
"""Max concurrent searches. Announces run between the script calls of a few searches, but would wait for the calls of
many."""
_TEXT_FIELDS = frozenset({"name", "reason"})
_SETTABLE = _TEXT_FIELDS | {"enabled", "private", "multi_up", "multi_dn", "size", "labels"}
TORRENTS_A_CALL = 50
"""Torrents that one script call adds. Takes the store one to two milliseconds. Announces wait for that call."""
READ_A_CALL = 100
"""Torrents that one script call reads. Takes the store about a millisecond. Announces wait for that call."""
_MAX_TEXT = 1000
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)


class Torrents:
    """The torrents under one key prefix. ``clock`` returns epoch seconds; ``channel`` is where changes are
    published."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float] = time.time,
        channel: str = "",
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._channel = channel or keys.channel("torrents")
        self._clock = clock
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    async def add(
        self, info_hash: InfoHash, fields: Mapping[str, str] | None = None, *, reset_score: bool = False
    ) -> tuple[str, bool]:
        """Registers a torrent and returns (id, True if it is new).

        An existing torrent keeps its id and statistics, and gets ``fields``. ``reset_score`` resets its score to 1.
        Raises ClientError for unknown or invalid fields, and if a site gave it an id that is not a number.
        """
        (added,) = await self.add_many([(info_hash, fields or {})])
        if isinstance(added, ClientError):
            raise added
        if reset_score:
            await self._scripts.reset_score([int(self._clock()), added[0]])
        return added

    async def add_many(
        self, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]
    ) -> list[tuple[str, bool] | ClientError]:
        """Registers torrents in order, with the fields of ``edit``, ``snatches``, which only a new torrent gets, and
        ``kept``: the names of those that a known torrent keeps if it has them, separated by spaces.

        Returns the outcome of each, as of ``add``; one that fails changes nothing.
        """
        outcomes: list[tuple[str, bool] | ClientError] = []
        for first in range(0, len(torrents), TORRENTS_A_CALL):
            outcomes += await self._add_batch(torrents[first : first + TORRENTS_A_CALL])
        return outcomes

    async def _add_batch(
        self, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]
    ) -> list[tuple[str, bool] | ClientError]:
        packed = [_packed(info_hash, fields) for info_hash, fields in torrents]
        valid = [each for each in packed if isinstance(each, bytes)]
        answers = iter(await self._scripts.add([int(self._clock()), *valid]) if valid else ())
        return [each if isinstance(each, ClientError) else _outcome(next(answers)) for each in packed]

    async def edit(self, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
        """Sets some of the fields name, private, enabled, reason, multi_up, multi_dn, size and labels.

        Raises ClientError for unknown or invalid fields, and for an unknown torrent.
        """
        row = checked_fields(fields)
        if not row:
            edited = await self._connection.command("EXISTS", self._keys.info_hash(info_hash))
        else:
            edited = await self._scripts.edit([info_hash.hex(), *_named(row), *_flat(row)])
        if not edited:
            raise ClientError("unknown torrent")
        if row:
            await self._changed(info_hash)

    async def change_rule(self, info_hash: InfoHash, change: RuleChange) -> bool:
        """Sets or removes one rule of a multiplier. False if there is none to remove.

        Raises ClientError for too many rules, and for a torrent that is not registered.
        """
        answer = await self._scripts.set_rule(change.arguments(info_hash=info_hash.hex()))
        if answer is None:
            raise ClientError("unknown torrent")
        if changed := has_changed(answer):
            await self._changed(info_hash)
        return changed

    async def remove(self, info_hash: InfoHash) -> bool:
        """Unregisters a torrent. False if it was not registered. Its peers leave the swarm within seconds."""
        arguments: list[str | bytes | int | float] = [info_hash.hex(), int(self._clock())]
        done = int(await self._scripts.remove([*arguments, 0]))
        while done == 3:  # more keys than one call may delete
            done = int(await self._scripts.remove([*arguments, 1]))
        await self._changed(info_hash)
        return done > 0

    async def deny(self, info_hash: InfoHash, reason: str) -> None:
        """Denies a torrent, registered or not, from the next announce on. ``reason`` is shown to its peers."""
        await self._scripts.deny([info_hash.hex(), int(self._clock()), reason[:_MAX_TEXT]])
        await self._changed(info_hash)

    async def allow(self, info_hash: InfoHash) -> bool:
        """Removes a torrent from the deny list. False if it was not on it."""
        denied = await self._scripts.allow([info_hash.hex()])
        await self._changed(info_hash)
        return bool(denied)

    async def denials(self, offset: int = 0, count: int = 100) -> list[Denial]:
        """Returns ``count`` denials from ``offset`` on, newest first.

        A denial that a site writes (`SET t:deny:…`) applies at once. It is listed after the next sweep of its torrent
        or after `Maintenance.reindex`. A denial that a site deleted is left out.
        """
        pairs = await self._connection.command(
            "ZRANGE", self._keys.denied(), offset, offset + count - 1, "REV", "WITHSCORES"
        )
        listed = listed_denials(ranked(pairs))
        if not listed:
            return []
        reasons = await self._connection.command("MGET", *(self._keys.deny(i) for i, _ in listed))
        found, gone = denials_of(listed, reasons)
        await self._unlist_denials(gone)
        return found

    async def _unlist_denials(self, gone: Sequence[InfoHash]) -> None:
        """Removes denials that a site deleted from the list."""
        rows = [Unlisted(info_hash.hex(), "", b"", b"", True) for info_hash in gone]
        await list_torrents(self._scripts, int(self._clock()), rows)

    async def denial_count(self) -> int:
        """Returns the number of listed denials."""
        return int(await self._connection.command("ZCARD", self._keys.denied()))

    async def _changed(self, info_hash: InfoHash) -> None:
        await self._connection.command("PUBLISH", self._channel, info_hash.hex())

    async def get(self, info_hash: InfoHash) -> Torrent | None:
        """Returns a torrent that is registered, denied or still has peers. None for any other."""
        found = await self.get_all([info_hash])
        return found[0] if found else None

    async def unregistered(self, info_hashes: Sequence[InfoHash]) -> list[InfoHash]:
        """Returns those of ``info_hashes`` that are not registered, in order."""
        if not info_hashes:
            return []
        ids = await self._connection.command("MGET", *map(self._keys.info_hash, info_hashes))
        return [each for each, found in zip(info_hashes, ids, strict=True) if found is None]

    async def get_all(self, info_hashes: Sequence[InfoHash]) -> list[Torrent]:
        """Returns the same for several torrents, in order. Others are left out."""
        found = [stored.read() for stored in await self.stored(info_hashes)]
        if not found:
            return []
        ids = (torrent.torrent_id for torrent in found)
        return with_scores(found, await self._connection.command("ZMSCORE", self._keys.index("score"), *ids))

    async def stored(self, info_hashes: Sequence[InfoHash]) -> list[StoredTorrent]:
        """The same as they are stored."""
        found: list[StoredTorrent] = []
        for first in range(0, len(info_hashes), READ_A_CALL):
            some = info_hashes[first : first + READ_A_CALL]
            rows = await self._scripts.read_torrents([info_hash.hex() for info_hash in some])
            found += (StoredTorrent(info_hash, *row) for info_hash, row in zip(some, rows, strict=True))
        return existing(found)

    async def registered(self, info_hashes: Sequence[InfoHash]) -> set[InfoHash]:
        """Returns those of the info hashes that are registered."""
        if not info_hashes:
            return set()
        ids = await self._connection.command("MGET", *(self._keys.info_hash(i) for i in info_hashes))
        return {info_hash for info_hash, id in zip(info_hashes, ids, strict=True) if id is not None}

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[Torrent]]:
        """Returns (next cursor, about ``count`` torrents), unordered. Cursor 0 begins and ends the walk.

        A torrent may appear twice.
        """
        after, flat = await self._connection.command(
            "ZSCAN", self._keys.index("seeders"), cursor, "COUNT", count
        )
        return int(after), await self.by_ids([i.decode() for i in flat[::2]])

    async def count(self) -> int:
        """Returns the number of torrents that ``page`` lists."""
        return int(await self._connection.command("ZCARD", self._keys.index("seeders")))

    async def top(
        self, ranking: str, count: int, offset: int = 0, *, ascending: bool = False
    ) -> list[Torrent]:
        """Returns ``count`` torrents from ``offset`` on, ordered by one of RANKINGS, highest value first.

        ``ascending`` returns the lowest first. A ranking by score holds only torrents with a score. Raises
        ClientError for another ranking.
        """
        if ranking not in RANKINGS:
            raise ClientError("unknown sort order")
        order = () if ascending else ("REV",)
        ids = await self._connection.command(
            "ZRANGE", self._keys.index(ranking), offset, offset + count - 1, *order
        )
        return await self.by_ids([i.decode() for i in ids])

    async def search(self, text: str, count: int = 100, cursor: str = "") -> tuple[str, list[Torrent]]:
        """Returns (next cursor, at most ``count`` torrents) that match ``text``. The cursor is '' at the end.

        A torrent matches if its name contains ``text``, in any case, or if its hex info hash begins with it. Results
        are ordered by name or by info hash. An empty text matches all torrents with a name. A page may be short or
        empty before the end. Raises ClientError for an invalid cursor.
        """
        async with self._searches:
            after, found = await Search(self._connection, self._scripts, self._keys, text).page(count, cursor)
        return after, await self.get_all(found) if found else []

    async def history(self, torrent: Torrent) -> list[Point]:
        """Returns the torrent's history of scorings, oldest first. Empty if no history is kept."""
        key = self._keys.history(torrent.torrent_id)
        entries = await self._connection.command("LRANGE", key, 0, -1)
        return [point for entry in entries if (point := point_of(entry)) is not None]

    async def history_entries(self, torrents: Sequence[Torrent]) -> list[list[bytes]]:
        """Returns the stored history of several torrents, in order; work/history.py averages it."""
        rows = await self._connection.pipeline(
            *(("LRANGE", self._keys.history(torrent.torrent_id), 0, -1) for torrent in torrents)
        )
        return [[] if isinstance(row, Exception) else row for row in rows]

    async def completers(self, torrent: Torrent) -> list[tuple[str, int]]:
        """Returns the last 20 users who completed the torrent, latest first, as (user id, epoch s).

        Deleted users are left out. Empty on a public tracker.
        """
        pairs = await self._connection.command(
            "ZRANGE", self._keys.completed(torrent.torrent_id), 0, MAX_COMPLETERS - 1, "REV", "WITHSCORES"
        )
        found = [(user_id, at) for user_id, at in ranked(pairs) if user_id.isascii() and user_id.isdigit()]
        known = await self._connection.pipeline(
            *(("ZCOUNT", self._keys.users(), user_id, user_id) for user_id, _ in found)
        )
        return [each for each, users in zip(found, known, strict=True) if users]

    async def by_ids(self, ids: Sequence[str]) -> list[Torrent]:
        """Returns the torrents with these ids, in order. Unknown ids are left out."""
        if not ids:
            return []
        hexed = await self._connection.command("MGET", *(self._keys.torrent_id(i) for i in ids))
        return await self.get_all([found for text in hexed if (found := info_hash_of(text)) is not None])

    async def peers(self, torrent: Torrent, cursor: int = 0, count: int = 100) -> tuple[int, list[Peer]]:
        """Returns (next cursor, about ``count`` active peers), unordered. Cursor 0 begins and ends the walk."""
        after, ids = await self._connection.command(
            "SSCAN", self._keys.swarm_peers(torrent.info_hash), cursor, "COUNT", count
        )
        peer_ids = [PeerId(bytes.fromhex(i.decode())) for i in ids]
        if not peer_ids:
            return int(after), []
        rows = await self._connection.pipeline(
            *(("HGETALL", self._keys.peer(torrent.torrent_id, p)) for p in peer_ids)
        )
        return int(after), [peer_of(p, hash_of(row)) for p, row in zip(peer_ids, rows, strict=True) if row]


def existing(torrents: Iterable[StoredTorrent]) -> list[StoredTorrent]:
    return [
        each for each in torrents if each.fields or each.torrent_id is not None or each.denied is not None
    ]


def with_scores(torrents: Sequence[Torrent], scores: Sequence[bytes | None]) -> list[Torrent]:
    return [
        torrent if found is None else replace(torrent, score=float(found))
        for torrent, found in zip(torrents, scores, strict=True)
    ]


def listed_denials(pairs: Sequence[tuple[str, float]]) -> list[tuple[InfoHash, int]]:
    """(info hash, time) of entries of the list; invalid ones are left out."""
    found = ((info_hash_of(text.encode()), score(since)) for text, since in pairs)
    return [(info_hash, since) for info_hash, since in found if info_hash is not None]


def denials_of(
    listed: Sequence[tuple[InfoHash, int]], reasons: Sequence[bytes | None]
) -> tuple[list[Denial], list[InfoHash]]:
    """The denials, and the listed ones that do not exist: they have no reason."""
    both = list(zip(listed, reasons, strict=True))
    found = [
        Denial(each, why.decode("utf-8", "replace"), since) for (each, since), why in both if why is not None
    ]
    return found, [each for (each, _), why in both if why is None]


def checked_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields as stored. Raises ClientError for an unknown field or an invalid value.

    An empty size means that it is unknown.
    """
    for name, value in fields.items():
        if name not in _SETTABLE:
            raise ClientError("a torrent has no such field")
        if name == "enabled" and value not in ("0", "1", "pending"):
            raise ClientError("enabled is 0, 1 or pending")
        if name == "private" and value not in ("0", "1"):
            raise ClientError("private is 0 or 1")
        if name.startswith("multi_"):
            checked_multipliers(value)
        if name == "size" and value and size_of(value) is None:
            raise ClientError(f"a size is a number of bytes from 0 to {MAX_SIZE}")
    row = {name: value[:_MAX_TEXT] for name, value in fields.items()}
    if "name" in row:
        row["name"] = clean_name(row["name"])
    return row | ({"labels": checked_labels(fields["labels"])} if "labels" in fields else {})


def checked_torrent(fields: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns (snatches, '' if they are not given; the other fields as stored) of a torrent to add. Raises ClientError
    as ``checked_fields`` does."""
    snatches = fields.get("snatches", "")
    if snatches and not _COUNT.fullmatch(snatches):
        raise ClientError("snatches is a whole number of at most 15 digits")
    others = ("snatches", "kept")
    return snatches, checked_fields({name: value for name, value in fields.items() if name not in others})


def _named(row: Mapping[str, str]) -> tuple[int, str]:
    """Returns (1 if the fields hold a name, else 0; the folded name), as the scripts that set fields expect."""
    return (1, fold_name(row["name"])) if "name" in row else (0, "")


def _packed(info_hash: InfoHash, fields: Mapping[str, str]) -> bytes | ClientError:
    """The argument for one torrent, as add.lua reads it; or why its fields are invalid."""
    try:
        snatches, row = checked_torrent(fields)
    except ClientError as error:
        return error
    kept = fields.get("kept", "").split()
    torrent = {"info_hash": info_hash.hex(), "fields": row, "snatches": snatches, "kept": kept}
    if "name" in row:
        torrent["folded"] = fold_name(row["name"])
    return orjson.dumps(torrent)


def _outcome(answer: list[Any] | bytes | None) -> tuple[str, bool] | ClientError:
    if isinstance(answer, list):
        return answer[0].decode(), answer[1] == 1
    if answer is None:
        return ClientError("this torrent is registered with an id that is not a number: remove it first")
    return ClientError("a key of this torrent is of the wrong type")


def _flat(row: Mapping[str, str]) -> list[str]:
    return [part for item in row.items() for part in item]
