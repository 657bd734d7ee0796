"""Reads what the policy has to know of torrents. Each call to the store is short, because announces wait meanwhile: a
command names at most PAGE torrents, and at most PIPELINED commands are sent at once."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any, NamedTuple

from tracker.bittorrent import InfoHash, info_hash_of
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import ranked, score, whole
from tracker.store.sharding.shards import Part, Shard, Shards, StorePart, in_parts
from tracker.store.work.demand import (
    EXCLUDING,
    MAX_ASKED,
    MAX_POINTS,
    Entry,
    TorrentState,
    exclusion,
    is_known,
    missing,
    needs_point,
    past_seeders,
    placed,
)
from tracker.store.work.projects import Projects
from tracker.store.work.records import Project, UnknownProject

FactRow = tuple[bytes, bytes, bytes, bytes]
"""As work_facts.lua takes them: item, claimant, endpoint in hex digits, "1" to find the user's seeder."""


class TorrentFacts(StorePart):
    """What scripts of projects ask of torrents that are under another prefix: projects are under the main one."""

    async def read(self, rows: Sequence[FactRow]) -> list[bytes]:
        """The facts for each row, packed; empty where the shard is unavailable. Raises redis.exceptions.RedisError."""
        items = [info_hash_of(row[0]) for row in rows]  # None for what the tracker did not write
        known = [(info_hash, row) for info_hash, row in zip(items, rows, strict=True) if info_hash is not None]
        packed = iter(await self._shards.split(known, lambda each: each[0], self._read_part))
        return [b"" if info_hash is None else next(packed) for info_hash in items]

    @staticmethod
    async def _read_part(shard: Shard, rows: list[tuple[InfoHash, FactRow]]) -> list[bytes]:
        try:
            found = await shard.scripts.work_facts(["", *(value for _, row in rows for value in row)])
        except StoreUnavailable:
            return [b""] * len(rows)
        return list(found)

    async def count_downloads(self, item: str) -> None:
        """Has what users download of a torrent counted from now on. Raises StoreUnavailable."""
        shard = self._shards.of(InfoHash(bytes.fromhex(item)))
        await shard.scripts.work_facts(["1", item, "", "", ""])


PAGE, PIPELINED = 500, 101
"""How many torrents a command names, and how many commands are sent at once, at most."""
_ADDED_UP = 20
"""Histories added up before this process serves others. They take about 1 ms."""
_REMEMBERED_SECONDS = 86_400
_MAX_COUNT = 10**9
_QUEUES = ("todo", "todo:secondary", "todo:redo")
_USER = re.compile(rb"[1-9][0-9]{0,14}")


@dataclass(slots=True)
class Found:
    """What a look at torrents of the ranking found."""

    candidates: list[tuple[int, InfoHash]] = field(default_factory=list)
    """(need, torrent): those that the project wants and the policy has not enqueued."""
    to_note: list[str] = field(default_factory=list)  # the ids of torrents whose histories miss a point
    cost: int = 0  # about 1 µs of store time each, with that of the points to come

    def add(self, other: "Found") -> None:
        self.candidates += other.candidates
        self.to_note += other.to_note
        self.cost += other.cost


class _Ranked(NamedTuple):
    """A torrent of the ranking by seeders, which may not exist."""

    torrent_id: str
    seeders: int
    leechers: int


class IdSet:
    """Ids of torrents since a time (epoch s), a bit each. Ids from MAX_ID on are never in it."""

    MAX_ID = 2**26

    def __init__(self) -> None:
        self._bits = bytearray()
        self.since = 0

    def __contains__(self, torrent_id: str) -> bool:
        byte, bit = self._place(torrent_id)
        return byte < len(self._bits) and bool(self._bits[byte] & bit)

    def clear(self, now: int) -> None:
        self._bits, self.since = bytearray(), now

    def add(self, torrent_id: str) -> None:
        byte, bit = self._place(torrent_id)
        if byte < self.MAX_ID // 8:
            self._bits.extend(bytes(max(0, byte + 1 - len(self._bits))))
            self._bits[byte] |= bit

    def discard(self, torrent_id: str) -> None:
        if torrent_id in self:
            byte, bit = self._place(torrent_id)
            self._bits[byte] &= ~bit

    def _place(self, torrent_id: str) -> tuple[int, int]:
        is_id = torrent_id.isascii() and torrent_id.isdigit() and len(torrent_id) <= 15
        number = int(torrent_id) if is_id else self.MAX_ID
        return number // 8, 1 << number % 8


class _ShardStates(Part):
    """The torrents of one shard. ``main`` has projects and users; ``abandoned``: torrents that have no peer and were
    never completed."""

    def __init__(self, shard: Shard, main: Shard, abandoned: IdSet) -> None:
        super().__init__(shard)
        self._main = main.connection
        self._main_keys = main.keys
        self._abandoned = abandoned

    async def read(
        self, name: str, info_hashes: Sequence[InfoHash], now: int
    ) -> tuple[Sequence[TorrentState], list[str]]:
        """Returns the torrents in order, and the ids of those whose histories miss a point."""
        keys, items = self._keys, [info_hash.hex() for info_hash in info_hashes]
        fields = ("tid", "seeders", "leechers", *EXCLUDING)
        reads = [("HMGET", keys.torrent(each), *fields) for each in info_hashes]
        rows = await self._sliced(reads, [None] * len(fields))
        tids = [(row[0] or b"").decode("utf-8", "replace") for row in rows]
        registered, denied, scores = await self._connection.replies(
            ("MGET", *map(keys.info_hash, info_hashes)),
            ("MGET", *map(keys.deny, info_hashes)),
            ("ZMSCORE", keys.index("score"), *tids),
        )
        holders = await self._main.command("HMGET", self._main_keys.work_holders(name), *items)
        entries = await self._entries(name, items)
        histories = await self._histories(tids)
        completers = await self._completers(
            [tid if row[0] and not whole(row[1]) else "" for tid, row in zip(tids, rows, strict=True)]
        )
        torrents, to_note = [], []
        for n, (tid, row) in enumerate(zip(tids, rows, strict=True)):
            if n % _ADDED_UP == 0:
                await asyncio.sleep(0)
            seeders, leechers = min(_MAX_COUNT, whole(row[1])), min(_MAX_COUNT, whole(row[2]))
            completed, users = completers[n]
            is_alive = seeders + leechers > 0 or completed
            if row[0] and is_alive and scores[n] is None and needs_point(histories[n], seeders, now):
                to_note.append(tid)
            torrents.append(
                TorrentState(
                    registered=registered[n] is not None and row[0] is not None,
                    denied=denied[n] is not None,
                    excluding=row[3:],
                    seeders=seeders,
                    leechers=leechers,
                    past=past_seeders(histories[n], now),
                    ranked=scores[n] is not None,
                    was_completed=completed,
                    completers=users,
                    holders=(holders[n] or b"").decode("utf-8", "replace").split(),
                    entry=entries[n],
                )
            )
        return torrents, to_note

    async def _entries(self, name: str, items: Sequence[str]) -> list[Entry]:
        keys = self._main_keys
        since, asked, wanted, needs, *places = await self._main.replies(
            ("HMGET", keys.work_policy(name), *items),
            ("HMGET", keys.work_asked(name), *items),
            ("HMGET", keys.work_wanted(name), *items),
            ("ZMSCORE", keys.work_needs(name), *items),
            *(("ZMSCORE", keys.work_queue(name, queue), *items) for queue in _QUEUES),
        )
        entries = []
        for n in range(len(items)):
            users = tuple((asked[n] or b"").decode("utf-8", "replace").split())
            queue = next((queue for queue, found in zip(_QUEUES, places, strict=True) if found[n] is not None), "")
            entries.append(
                Entry(
                    managed=since[n] is not None,
                    asked_since=whole(since[n]) or None,
                    copies=max(1, whole(wanted[n] or b"1")) if users or queue else 0,
                    queue=queue,
                    asked=users,
                    need=None if needs[n] is None else floor(float(needs[n])),
                )
            )
        return entries

    async def weak(self, project: Project, first: int, count: int, limit: float, now: int) -> Found:
        """As TorrentStates.weak."""
        rows, asked_for = await self._with_users_to_ask(await self._ranking(first, count), now)
        found = Found(cost=count + 3 * asked_for + 6 * len(rows))
        if not rows:
            return found
        scores = await self._connection.command("ZMSCORE", self._keys.index("score"), *(row.torrent_id for row in rows))
        histories = await self._histories([row.torrent_id for row in rows])
        short: list[tuple[_Ranked, float, int]] = []
        for n, (row, rank, entries) in enumerate(zip(rows, scores, histories, strict=True)):
            if n % _ADDED_UP == 0:
                await asyncio.sleep(0)
            if rank is None and needs_point(entries, row.seeders, now):
                found.to_note.append(row.torrent_id)
            past = past_seeders(entries, now)
            if past is None or not is_known(past, now, ranked=rank is not None):
                continue
            need = placed(project, past.average, row.seeders, row.leechers).need
            if need < limit and missing(project, past.average, row.seeders, 0) > 0:
                short.append((row, past.average, need))
        if short:
            found.candidates = await self._not_enqueued(project, short)
        found.cost += 12 * (len(short) + len(found.to_note))
        return found

    async def _ranking(self, first: int, count: int) -> list[_Ranked]:
        rows = ranked(
            await self._connection.command(
                "ZRANGE", self._keys.index("seeders"), first, first + count - 1, "WITHSCORES"
            )
        )
        if not rows:
            return []
        leechers = await self._connection.command("ZMSCORE", self._keys.index("leechers"), *(tid for tid, _ in rows))
        return [
            _Ranked(tid, min(_MAX_COUNT, seeders), min(_MAX_COUNT, score(number or b"0")))
            for (tid, seeders), number in zip(rows, leechers, strict=True)
        ]

    async def _with_users_to_ask(self, rows: Sequence[_Ranked], now: int) -> tuple[list[_Ranked], int]:
        """Leaves out torrents that have no peer and were never completed. Returns also how many the store was asked
        for. Of a million torrents most are such. None is completed before it has a peer again, so they are
        remembered."""
        abandoned = self._abandoned
        if now >= abandoned.since + _REMEMBERED_SECONDS:
            abandoned.clear(now)
        for row in rows:
            if row.seeders + row.leechers > 0:
                abandoned.discard(row.torrent_id)
        unknown = [
            row.torrent_id for row in rows if row.seeders + row.leechers == 0 and row.torrent_id not in abandoned
        ]
        replies = await self._sliced([("EXISTS", self._keys.completed(tid)) for tid in unknown], None)
        never = {tid for tid, exists in zip(unknown, replies, strict=True) if exists == 0}
        left = [row for row in rows if row.torrent_id not in never and row.torrent_id not in abandoned]
        for tid in never:
            abandoned.add(tid)
        return left, len(unknown)

    async def _not_enqueued(
        self, project: Project, short: Sequence[tuple[_Ranked, float, int]]
    ) -> list[tuple[int, InfoHash]]:
        """The torrents that users may be asked to seed, and that the policy has not enqueued."""
        main_keys, name = self._main_keys, project.name
        texts = await self._connection.command("MGET", *(self._keys.torrent_id(row.torrent_id) for row, _, _ in short))
        known = [
            (info_hash, row, average, need)
            for text, (row, average, need) in zip(texts, short, strict=True)
            if (info_hash := info_hash_of(text)) is not None
        ]
        if not known:
            return []
        items = [info_hash.hex() for info_hash, *_ in known]
        managed, holders = await self._main.replies(
            ("HMGET", main_keys.work_policy(name), *items), ("HMGET", main_keys.work_holders(name), *items)
        )
        left = [
            (info_hash, row, need)
            for (info_hash, row, average, need), is_managed, text in zip(known, managed, holders, strict=True)
            if is_managed is None and missing(project, average, row.seeders, len((text or b"").split())) > 0
        ]
        reads = [("HMGET", self._keys.torrent(info_hash), *EXCLUDING) for info_hash, _, _ in left]
        fields = await self._sliced(reads, None)
        completers = await self._completers(
            [row.torrent_id if row.seeders + row.leechers == 0 else "" for _, row, _ in left]
        )
        return [
            (need, info_hash)
            for (info_hash, row, need), values, (_, users) in zip(left, fields, completers, strict=True)
            if values is not None
            and not exclusion(project, values)
            and (row.seeders + row.leechers > 0 or (users and project.verify != "address"))
        ]

    async def _histories(self, torrent_ids: Sequence[str]) -> list[list[bytes]]:
        """In order. Added up here: in a script it would take five times as long as all else."""
        return await self._sliced([("LRANGE", self._keys.history(tid), -MAX_POINTS, -1) for tid in torrent_ids], [])

    async def _completers(self, torrent_ids: Sequence[str]) -> list[tuple[bool, list[str]]]:
        """Returns, in order: whether any user completed the torrent, and who of the last ones still exists, the last
        one first. No user for an empty id."""
        asked = [tid for tid in torrent_ids if tid]
        reads = [("ZRANGE", self._keys.completed(tid), 0, MAX_ASKED - 1, "REV") for tid in asked]
        last = dict(zip(asked, await self._sliced(reads, []), strict=True))
        users = sorted({user for reply in last.values() for user in reply if _USER.fullmatch(user)})
        commands = [("ZCOUNT", self._main_keys.users(), user, user) for user in users]
        counts = await self._sliced(commands, 0, self._main)
        existing = {user for user, count in zip(users, counts, strict=True) if count}
        return [
            (bool(reply), [user.decode() for user in reply if user in existing])
            for reply in (last.get(tid, []) for tid in torrent_ids)
        ]

    async def _sliced(
        self, commands: Sequence[tuple[Argument, ...]], otherwise: Any, connection: Connection | None = None
    ) -> list[Any]:
        """The replies; ``otherwise`` for a command that fails."""
        replies: list[Any] = []
        for some in in_parts(commands, PIPELINED):
            replies += await (connection or self._connection).pipeline(*some)
        return [otherwise if isinstance(reply, Exception) else reply for reply in replies]


class TorrentStates(StorePart):
    """The torrents of all shards. The ranking of each shard follows that of the shard before. ``clock`` returns epoch
    seconds."""

    def __init__(self, shards: Shards, projects: Projects, clock: Callable[[], float]) -> None:
        super().__init__(shards, clock)
        self._projects = projects
        abandoned = IdSet()
        self._parts = [_ShardStates(shard, shards.main, abandoned) for shard in shards]

    async def read(
        self, name: str, info_hashes: Sequence[InfoHash], now: int
    ) -> tuple[Project, Sequence[TorrentState | None], list[str]]:
        """Returns the project, the torrents in order, and the ids of those whose histories miss a point. A torrent of a
        shard that is unavailable is None. Raises UnknownProject, also for a project that has no policy."""
        project = await self._projects.get(name)
        if project.kind != "seeding":
            raise UnknownProject
        to_note: list[str] = []

        async def read_part(shard: Shard, part: list[InfoHash]) -> Sequence[TorrentState | None]:
            try:
                found, ids = await self._parts[shard.number].read(name, part, now)
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                return [None] * len(part)
            to_note.extend(ids)
            return found

        return project, await self._shards.split(info_hashes, lambda each: each, read_part), to_note

    async def weak_count(self, project: Project) -> int:
        """The number of torrents that have fewer seeders now than the target."""
        return sum((await self._weak_counts(project)).values())

    async def _weak_counts(self, project: Project) -> dict[Shard, int]:
        """Without shards that are unavailable."""
        return await self._shards.each(
            lambda shard: ("ZCOUNT", shard.keys.index("seeders"), "-inf", f"({project.target}")
        )

    async def weak(self, project: Project, first: int, count: int, limit: float) -> Found:
        """Looks at ``count`` torrents from rank ``first`` on, at most PAGE, fewest seeders first. Torrents whose need
        is not below ``limit`` are no candidates."""
        found, now = Found(), int(self._clock())
        for shard, size in (await self._weak_counts(project)).items():
            if first < size and count > 0:
                looked_at = min(count, size - first)
                found.add(await self._parts[shard.number].weak(project, first, looked_at, limit, now))
                first, count = size, count - looked_at
            first -= size
        return found

    async def note(self, torrent_ids: Sequence[str]) -> None:
        """Adds points of now to the histories of these torrents, without those that scorings add points for."""
        now, by_shard = int(self._clock()), await self._shards.parts_of_torrents(torrent_ids)
        await self._shards.gather(lambda shard: shard.scripts.work_note([now, *by_shard[shard]]), list(by_shard))
