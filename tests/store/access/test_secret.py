"""The secret shared by the trackers on one store."""

import asyncio

from tests.store.harness import Store
from tracker.store.access.rate_limits import shared_secret


async def test_the_secret_is_generated_once_and_shared(store: Store) -> None:
    some = await asyncio.gather(*(shared_secret(store.connection, store.keys) for _ in range(5)))
    assert len(set(some)) == 1 and len(some[0]) == 32
    await store.redis.set(store.keys.secret(), b"of before")
    assert await shared_secret(store.connection, store.keys) == b"of before"
