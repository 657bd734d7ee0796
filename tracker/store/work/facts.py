"""Facts about torrents that are not where projects are: with several shards, torrents are in shards, and projects at
home."""

from collections.abc import Sequence
from typing import Protocol

FactRow = tuple[bytes, bytes, bytes, bytes]
"""As work_facts.lua takes them: item, claimant, endpoint in hex digits, "1" to find the user's seeder."""


class TorrentFacts(Protocol):
    async def read(self, rows: Sequence[FactRow]) -> list[bytes]:
        """The facts for each row, packed; empty if the shard is unavailable. Raises redis.exceptions.RedisError."""

    async def count_downloads(self, item: str) -> None:
        """Has what users download of a torrent counted from now on. Raises StoreUnavailable."""
