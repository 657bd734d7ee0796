"""The register of torrents: registrations, denials, statistics and peers."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from tracker.bittorrent import InfoHash, PeerId, info_hash_of
from tracker.errors import ClientError, StoreUnavailable
from tracker.names import clean_text, fold_name
from tracker.store.client.pipe import Argument, flattened
from tracker.store.schema.lenient_numbers import hash_of, ranked, score
from tracker.store.schema.multipliers import RuleChange, checked_multipliers, has_changed
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, Shards, in_parts, read_in_turns
from tracker.store.torrents.name_index import list_denials, page_of_torrents
from tracker.store.torrents.records import (
    MAX_SIZE,
    Denial,
    Peer,
    Point,
    StoredTorrent,
    Torrent,
    checked_labels,
    peer_of,
    point_of,
    size_of,
)
from tracker.store.torrents.search import search_shards

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
READ_A_CALL = 50
"""Torrents that one script call reads. Takes the store about a millisecond. Announces wait for that call."""
READ_A_ROUND = 200
"""Torrents that one round trip reads, from at least four shards. A call takes the store as long as one or two torrents,
so those of a page share the calls."""
_MAX_TEXT = 1000
MAX_OWN_ID = 10**13 - 1
"""The highest id that a site may give a torrent. Those that the tracker gives out later are above it, and shorter than
those that renumbering uses meanwhile."""
_ID = re.compile(r"[1-9][0-9]{0,12}", re.ASCII)
ID_TAKEN = "another torrent has this torrent id"
_ERRORS = {
    b"id": "this torrent is registered with another torrent id; `tracker torrent renumber` changes ids",
    b"taken": ID_TAKEN,
    b"error": "a key of this torrent is of the wrong type",
}
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)


class Torrents:
    """``clock`` returns epoch seconds. Changes are published on the main channel."""

    def __init__(self, shards: Shards, clock: Callable[[], float] = time.time) -> None:
        self._shards = shards
        self._clock = clock
        self._channel = shards.main.keys.channel("torrents")
        self._read_at_once = min(READ_A_ROUND, READ_A_CALL * len(shards))
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    # One torrent

    async def add(
        self, info_hash: InfoHash, fields: Mapping[str, str] | None = None, *, reset_score: bool = False
    ) -> tuple[str, bool]:
        """Registers a torrent and returns (id, True if it is new). An existing torrent keeps its id and statistics, and
        gets ``fields``. ``reset_score`` resets its score to 1. Raises ClientError for unknown or invalid fields, and if
        a site gave it an id that is not a number."""
        (added,) = await self.add_many([(info_hash, fields or {})])
        if isinstance(added, ClientError):
            raise added
        if reset_score:
            await self._shards.of(info_hash).scripts.reset_score([int(self._clock()), added[0]])
        return added

    async def edit(self, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
        """Sets some of the fields name, private, enabled, reason, multi_up, multi_dn, size and labels. Raises
        ClientError for unknown or invalid fields, and for an unknown torrent."""
        row, shard = checked_fields(fields), self._shards.of(info_hash)
        if not row:
            edited = await shard.connection.command("EXISTS", shard.keys.info_hash(info_hash))
        else:
            name = (1, fold_name(row["name"])) if "name" in row else (0, "")
            edited = await shard.scripts.edit([info_hash.hex(), *name, *flattened(row)])
        if not edited:
            raise ClientError("unknown torrent")
        if row:
            await self._changed(info_hash)

    async def change_rule(self, info_hash: InfoHash, change: RuleChange) -> bool:
        """Sets or removes one rule of a multiplier. False if there is none to remove. Raises ClientError for too many
        rules, and for a torrent that is not registered."""
        scripts = self._shards.of(info_hash).scripts
        answer = await scripts.set_rule([*change, "", info_hash.hex()])
        if answer is None:
            raise ClientError("unknown torrent")
        if changed := has_changed(answer):
            await self._changed(info_hash)
        return changed

    async def remove(self, info_hash: InfoHash) -> bool:
        """Unregisters a torrent. False if it was not registered. Its peers leave the swarm within seconds."""
        remove = self._shards.of(info_hash).scripts.remove
        arguments: list[Argument] = [info_hash.hex(), int(self._clock())]
        done = int(await remove([*arguments, 0]))
        while done == 3:  # more keys than one call may delete
            done = int(await remove([*arguments, 1]))
        await self._changed(info_hash)
        return done > 0

    async def deny(self, info_hash: InfoHash, reason: str) -> None:
        """Denies a torrent, registered or not, from the next announce on. ``reason`` is shown to its peers."""
        deny = self._shards.of(info_hash).scripts.deny
        await deny([info_hash.hex(), int(self._clock()), clean_text(reason)[:_MAX_TEXT]])
        await self._changed(info_hash)

    async def allow(self, info_hash: InfoHash) -> bool:
        """Removes a torrent from the deny list. False if it was not on it."""
        denied = await self._shards.of(info_hash).scripts.allow([info_hash.hex()])
        await self._changed(info_hash)
        return bool(denied)

    async def _changed(self, info_hash: InfoHash) -> None:
        connection = self._shards.of(info_hash).connection
        await connection.command("PUBLISH", self._channel, info_hash.hex())

    async def get(self, info_hash: InfoHash) -> Torrent | None:
        """Returns a torrent that is registered, denied or still has peers. None for any other."""
        found = await self.get_all([info_hash])
        return found[0] if found else None

    async def history(self, torrent: Torrent) -> list[Point]:
        """Returns the torrent's history of scorings, oldest first. Empty if no history is kept."""
        shard = self._shards.of(torrent.info_hash)
        entries = await shard.connection.command("LRANGE", shard.keys.history(torrent.torrent_id), 0, -1)
        return [point for entry in entries if (point := point_of(entry)) is not None]

    async def completers(self, torrent: Torrent) -> list[tuple[str, int]]:
        """Returns the last 20 users who completed the torrent, latest first, as (user id, epoch s). Deleted users are
        left out. Empty on a public tracker."""
        shard = self._shards.of(torrent.info_hash)
        key = shard.keys.completed(torrent.torrent_id)
        pairs = await shard.connection.command("ZRANGE", key, 0, MAX_COMPLETERS - 1, "REV", "WITHSCORES")
        found = [(user_id, at) for user_id, at in ranked(pairs) if user_id.isascii() and user_id.isdigit()]
        known = await shard.connection.pipeline(
            *(("ZCOUNT", shard.keys.users(), user_id, user_id) for user_id, _ in found)
        )
        return [each for each, users in zip(found, known, strict=True) if users]

    async def peers(self, torrent: Torrent, cursor: int = 0, count: int = 100) -> tuple[int, list[Peer]]:
        """Returns (next cursor, about ``count`` active peers), unordered. Cursor 0 begins and ends the walk."""
        shard = self._shards.of(torrent.info_hash)
        after, ids = await shard.connection.command(
            "SSCAN", shard.keys.swarm_peers(torrent.info_hash), cursor, "COUNT", count
        )
        peer_ids = [PeerId(bytes.fromhex(i.decode())) for i in ids]
        if not peer_ids:
            return int(after), []
        rows = await shard.connection.pipeline(*(("HGETALL", shard.keys.peer(torrent.torrent_id, p)) for p in peer_ids))
        return int(after), [peer_of(p, hash_of(row)) for p, row in zip(peer_ids, rows, strict=True) if row]

    # Several torrents

    async def add_many(
        self, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]
    ) -> list[tuple[str, bool] | ClientError]:
        """Registers torrents in order, with the fields of ``edit``, ``snatches`` and ``torrent_id``, which only a new
        torrent gets, and ``kept``: the names of those that a known torrent keeps if it has them, separated by spaces.

        Returns the outcome of each, as of ``add``; one that fails changes nothing. Later ids are above every
        ``torrent_id``. Raises StoreUnavailable for one while a shard is unavailable.
        """
        taken = await self._taken(torrents)
        rest = [each for number, each in enumerate(torrents) if number not in taken]
        added = iter(await self._shards.split(rest, lambda each: each[0], self._add_to))
        return [taken.get(number) or next(added) for number in range(len(torrents))]

    async def _taken(self, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]) -> dict[int, ClientError]:
        """The places of torrents whose own id another one has, also in another shard; makes later ids higher."""
        ids = {each["torrent_id"]: info_hash for info_hash, each in reversed(torrents) if each.get("torrent_id")}
        valid = [torrent_id for torrent_id in ids if is_torrent_id(torrent_id)]
        if not valid:
            return {}
        owners = {each: owner for each, (_, owner) in (await self._shards.find_torrents(valid)).items()}
        if self._shards.unavailable:
            raise StoreUnavailable("a torrent gets an id of its own only while all shards are available")
        for shard in self._shards:
            await shard.scripts.raise_torrent_id([max(valid, key=int)])
        return {
            number: ClientError(ID_TAKEN)
            for number, (info_hash, each) in enumerate(torrents)
            if (torrent_id := each.get("torrent_id")) and owners.get(torrent_id, ids[torrent_id]) != info_hash
        }

    async def _add_to(
        self, shard: Shard, torrents: Sequence[tuple[InfoHash, Mapping[str, str]]]
    ) -> list[tuple[str, bool] | ClientError]:
        outcomes: list[tuple[str, bool] | ClientError] = []
        for some in in_parts(torrents, TORRENTS_A_CALL):
            packed = [_packed(info_hash, fields) for info_hash, fields in some]
            valid = [each for each in packed if isinstance(each, bytes)]
            answers = iter(await shard.scripts.add([int(self._clock()), *valid]) if valid else ())
            outcomes += (each if isinstance(each, ClientError) else _outcome(next(answers)) for each in packed)
        return outcomes

    async def get_all(self, info_hashes: Sequence[InfoHash]) -> list[Torrent]:
        """Returns the same as ``get`` for several torrents, in order. Others are left out. Some are parsed at a time,
        so that this process answers announces in between."""
        found: list[Torrent] = []
        for some in in_parts(info_hashes, self._read_at_once):
            found += await read_in_turns(await self.stored(some), StoredTorrent.read)
        return found

    async def stored(self, info_hashes: Sequence[InfoHash]) -> list[StoredTorrent]:
        """The same as they are stored."""
        found: list[StoredTorrent | None] = []
        for some in in_parts(info_hashes, self._read_at_once):
            parts = self._shards.by_shard(some, InfoHash)
            rows = await self._rows({shard: [each.hex() for each in part] for shard, part in parts.items()})
            if len(rows) < len(parts):
                raise StoreUnavailable("a shard that has some of the torrents is unavailable")
            by_hash = {each: row for shard, part in parts.items() for each, row in zip(part, rows[shard], strict=True)}
            found += map(by_hash.get, some)
        return existing(found)

    async def _rows(
        self, names: Mapping[Shard, Sequence[str]], *, by_id: bool = False
    ) -> dict[Shard, list[StoredTorrent | None]]:
        """What available shards have of torrents, by their hex info hashes or ids. None for an unknown id, and for one
        with an invalid info hash."""
        found = await self._shards.run(
            lambda shard: shard.scripts.read_torrents, {shard: [int(by_id), *own] for shard, own in names.items()}
        )
        return {
            shard: [StoredTorrent(known, *row[1:]) if row and (known := info_hash_of(row[0])) else None for row in rows]
            for shard, rows in found.items()
        }

    async def registered(self, info_hashes: Sequence[InfoHash]) -> set[InfoHash]:
        return set(info_hashes) - set(await self.unregistered(info_hashes))

    async def unregistered(self, info_hashes: Sequence[InfoHash]) -> list[InfoHash]:
        """Returns those of ``info_hashes`` that are not registered, in order."""

        async def ids_in(shard: Shard, part: list[InfoHash]) -> list[bytes | None]:
            found: list[bytes | None] = await shard.connection.command("MGET", *map(shard.keys.info_hash, part))
            return found

        ids = await self._shards.split(info_hashes, InfoHash, ids_in)
        return [info_hash for info_hash, found in zip(info_hashes, ids, strict=True) if found is None]

    async def history_entries(self, torrents: Sequence[Torrent]) -> list[list[bytes]]:
        """Returns the stored history of several torrents, in order; work/demand.py averages it."""
        of = self._shards.of
        rows = await self._shards.send(
            [
                (shard := of(each.info_hash), ("LRANGE", shard.keys.history(each.torrent_id), 0, -1))
                for each in torrents
            ],
            keep_errors=True,
        )
        return [[] if isinstance(row, Exception) else row for row in rows]

    async def by_ids(self, ids: Sequence[str]) -> list[Torrent]:
        """Returns the torrents with these ids, in order. Unknown ids are left out."""
        found: list[Torrent] = []
        for some in in_parts(ids, self._read_at_once):
            parts = await self._shards.parts_of_torrents(some)
            rows = await self._rows(parts, by_id=True) if parts else {}
            by_id = {each: row for shard in rows for each, row in zip(parts[shard], rows[shard], strict=True)}
            stored = existing(by_id.get(torrent_id) for torrent_id in some)
            found += await read_in_turns(stored, StoredTorrent.read)
        return found

    # Lists

    async def count(self) -> int:
        """Returns the number of torrents that ``page`` lists."""
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.index("seeders")))).values())

    async def page(self, cursor: int, count: int = 100) -> tuple[int, list[Torrent]]:
        """Returns (next cursor, about ``count`` torrents), unordered. Cursor 0 begins and ends the walk. A torrent may
        appear twice."""
        after, found = await self._shards.page(cursor, lambda shard, own: page_of_torrents(shard, own, count))
        return after, await self.by_ids([torrent_id for torrent_id, _ in found])

    async def top(self, ranking: str, count: int, offset: int = 0, *, ascending: bool = False) -> list[Torrent]:
        """Returns ``count`` torrents from ``offset`` on, ordered by one of RANKINGS, highest value first. ``ascending``
        returns the lowest first. A ranking by score holds only torrents with a score. Raises ClientError for another
        ranking."""
        if ranking not in RANKINGS:
            raise ClientError("unknown sort order")
        pairs = await top_of(self._shards, lambda shard: shard.keys.index(ranking), count, offset, ascending=ascending)
        return await self.by_ids([torrent_id for torrent_id, _ in pairs])

    async def denials(self, offset: int = 0, count: int = 100) -> list[Denial]:
        """Returns ``count`` denials from ``offset`` on, newest first. A denial that a site writes (`SET t:deny:…`)
        applies at once. It is listed after the next sweep of its torrent or after `Maintenance.reindex`. A denial that
        a site deleted is left out."""
        pairs = await top_of(self._shards, lambda shard: shard.keys.denied(), count, offset)
        listed = [(each, since) for text, since in pairs if (each := info_hash_of(text.encode())) is not None]
        reasons = await self._shards.send(
            [(shard := self._shards.of(each), ("MGET", shard.keys.deny(each))) for each, _ in listed]
        )
        found, gone = list[Denial](), list[InfoHash]()
        for (each, since), (reason,) in zip(listed, reasons, strict=True):
            if reason is None:
                gone.append(each)
            else:
                found.append(Denial(each, clean_text(reason.decode("utf-8", "replace")), score(since)))
        for shard, part in self._shards.by_shard(gone, InfoHash).items():
            await list_denials(shard.scripts, int(self._clock()), (info_hash.hex() for info_hash in part))
        return found

    async def denial_count(self) -> int:
        return sum((await self._shards.each(lambda shard: ("ZCARD", shard.keys.denied()))).values())

    async def search(self, text: str, count: int = 100, cursor: str = "") -> tuple[str, list[Torrent]]:
        """Returns (next cursor, at most ``count`` torrents) that match ``text``. The cursor is '' at the end.

        A torrent matches if its name contains ``text``, in any case, or if its hex info hash begins with it. Results
        of a shard are ordered by name or by info hash, and follow those of the shard before. An empty text matches all
        torrents with a name. A page may be short or empty before the end. Raises ClientError for an invalid cursor.
        """
        async with self._searches:
            after, found = await search_shards(self._shards, text, count, cursor)
        return after, await self.get_all(found)


def existing(torrents: Iterable[StoredTorrent | None]) -> list[StoredTorrent]:
    return [
        each
        for each in torrents
        if each is not None and (each.fields or each.torrent_id is not None or each.denied is not None)
    ]


def checked_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields as stored. Raises ClientError for an unknown field or an invalid value. An empty size means
    that it is unknown."""
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
    row |= {name: clean_text(row[name]) for name in _TEXT_FIELDS if name in row}
    return row | ({"labels": checked_labels(fields["labels"])} if "labels" in fields else {})


def is_torrent_id(text: str) -> bool:
    """Whether a site may give a torrent this id."""
    return _ID.fullmatch(text) is not None


def checked_torrent(fields: Mapping[str, str]) -> dict[str, Any]:
    """A torrent to add, as add.lua reads it, but without the info hash. Raises ClientError as ``checked_fields``
    does."""
    others = dict(fields)
    snatches, torrent_id, kept = (others.pop(name, "") for name in ("snatches", "torrent_id", "kept"))
    if snatches and not _COUNT.fullmatch(snatches):
        raise ClientError("snatches is a whole number of at most 15 digits")
    if torrent_id and not is_torrent_id(torrent_id):
        raise ClientError("a torrent id is a number from 1 on of at most 14 digits")
    row = checked_fields(others)
    folded = {"folded": fold_name(row["name"])} if "name" in row else {}
    return {"fields": row, "snatches": snatches, "id": torrent_id, "kept": kept.split(), **folded}


def _packed(info_hash: InfoHash, fields: Mapping[str, str]) -> bytes | ClientError:
    try:
        return orjson.dumps({"info_hash": info_hash.hex(), **checked_torrent(fields)})
    except ClientError as error:
        return error


def _outcome(answer: list[Any] | bytes | None) -> tuple[str, bool] | ClientError:
    if isinstance(answer, list):
        return answer[0].decode(), answer[1] == 1
    if answer is None:
        return ClientError("this torrent is registered with an id that is not a number: remove it first")
    return ClientError(_ERRORS[answer])
