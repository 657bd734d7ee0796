"""A store with several shards beside one with a single shard, for the same calls."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.store.harness import Clock, Store, running
from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

SHARDS = 4


def hash_in(shard: int, number: int = 0) -> InfoHash:
    """An info hash that belongs to a shard of four."""
    return InfoHash(bytes([shard + SHARDS * (number % 8)]) + number.to_bytes(19, "big"))


@asynccontextmanager
async def one_and_several(url: str, prefix: str, **rules: Any) -> AsyncIterator[tuple[Store, Store]]:
    """A store with one shard and one with four, with the same clock and rules."""
    clock, given = Clock(), SwarmRules(**rules)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(running(Store(url, Keys(f"{prefix}one:"), given, clock)))
        several = await stack.enter_async_context(
            running(Store(url, Keys(f"{prefix}several:"), given, clock, SHARDS))
        )
        yield one, several
