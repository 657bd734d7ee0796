"""Facts about torrents that are not where projects are: projects are under the main prefix, and torrents in shards."""

from collections.abc import Sequence

from tracker.bittorrent import InfoHash, info_hash_of
from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shard, Shards

FactRow = tuple[bytes, bytes, bytes, bytes]
"""As work_facts.lua takes them: item, claimant, endpoint in hex digits, "1" to find the user's seeder."""


class TorrentFacts:
    """The scripts of projects ask for them where torrents are under another prefix."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def read(self, rows: Sequence[FactRow]) -> list[bytes]:
        """The facts for each row, packed; empty where the shard is unavailable. Raises redis.exceptions.RedisError."""
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
        """Has what users download of a torrent counted from now on. Raises StoreUnavailable."""
        shard = self._shards.of(InfoHash(bytes.fromhex(item)))
        await shard.scripts.work_facts(["1", item, "", "", ""])


def _item_of(row: FactRow) -> InfoHash | None:
    """None for what the tracker did not write."""
    return info_hash_of(row[0])
