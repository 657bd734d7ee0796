"""Projects of kind seeding on several shards: projects are at home, and their torrents in shards."""

from collections.abc import Callable, Sequence

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.torrents.records import info_hash_of
from tracker.store.work.demand import TorrentState
from tracker.store.work.facts import FactRow
from tracker.store.work.records import Project
from tracker.store.work.sizes import Sizes
from tracker.store.work.torrent_states import Found, IdSet, Remembered, TorrentStates


class ShardedTorrentFacts:
    """As TorrentFacts."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def read(self, rows: Sequence[FactRow]) -> list[bytes]:
        known = [(info_hash, row) for row in rows if (info_hash := _item_of(row)) is not None]
        packed = iter(await self._shards.split(known, lambda each: each[0], self._read_part))
        return [b"" if _item_of(row) is None else next(packed) for row in rows]

    @staticmethod
    async def _read_part(shard: Shard, rows: list[tuple[InfoHash, FactRow]]) -> list[bytes]:
        try:
            found = await shard.scripts.work_facts(["", *(value for _, row in rows for value in row)])
        except StoreUnavailable:
            return [b""] * len(rows)
        return list(found)

    async def count_downloads(self, item: str) -> None:
        shard = self._shards.of(InfoHash(bytes.fromhex(item)))
        await shard.scripts.work_facts(["1", item, "", "", ""])


def _item_of(row: FactRow) -> InfoHash | None:
    """None for what the tracker did not write."""
    return info_hash_of(row[0])


class ShardedTorrentStates(TorrentStates):
    """The ranking of each shard follows that of the shard before."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys, shards: Shards) -> None:
        super().__init__(connection, scripts, keys)
        self._shards = shards
        remembered = Remembered(IdSet())
        self._parts = [
            TorrentStates(
                connection, scripts, keys, (shard.connection, shard.scripts, shard.keys), remembered
            )
            for shard in shards
        ]

    async def read(
        self, name: str, info_hashes: Sequence[InfoHash], now: int
    ) -> tuple[Project, Sequence[TorrentState | None], list[str]]:
        project, _, _ = await super().read(name, [], now)
        to_note: list[str] = []

        async def read_part(shard: Shard, part: list[InfoHash]) -> Sequence[TorrentState | None]:
            try:
                _, found, ids = await self._parts[shard.number].read(name, part, now)
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                return [None] * len(part)
            to_note.extend(ids)
            return found

        return project, await self._shards.split(info_hashes, lambda each: each, read_part), to_note

    async def weak_counts(self, project: Project) -> list[int]:
        """By number of the shard; 0 for those that are away."""
        found = await self._shards.each(
            lambda shard: ("ZCOUNT", shard.keys.index("seeders"), "-inf", f"({project.target}")
        )
        return [int(found.get(shard, 0)) for shard in self._shards]

    async def weak_count(self, project: Project) -> int:
        return sum(await self.weak_counts(project))

    async def weak(self, project: Project, first: int, count: int, limit: float, now: int) -> Found:
        found = Found()
        for part, size in zip(self._parts, await self.weak_counts(project), strict=True):
            if first < size and count > 0:
                looked_at = min(count, size - first)
                found.add(await part.weak(project, first, looked_at, limit, now))
                first, count = size, count - looked_at
            first -= size
        return found

    async def note(self, torrent_ids: Sequence[str], now: int) -> None:
        shards = await self._shards.of_torrents(torrent_ids)
        pairs = list(zip(torrent_ids, shards, strict=True))
        await self._shards.gather(
            lambda shard: self._parts[shard.number].note([id for id, at in pairs if at is shard], now)
        )


class ShardedSizes(Sizes):
    """Sums are stored at home. A walk fails while a shard is away."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        shards: Shards,
    ) -> None:
        super().__init__(connection, scripts, keys, clock)
        self._parts = [Sizes(shard.connection, shard.scripts, shard.keys, clock) for shard in shards]

    async def scan(self, cursor: str) -> tuple[str, list[int]]:
        """As ScanCursors."""
        shards = len(self._parts)
        own, number = divmod(int(cursor), shards)
        after, sums = await self._parts[number].scan(str(own))
        return str(int(after) * shards + number if int(after) else (number + 1) % shards), sums
