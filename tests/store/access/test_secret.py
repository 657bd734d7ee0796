"""The secret of the trackers on one store."""

import asyncio

from tests.store.harness import Store
from tracker.store.secret import shared_secret


async def test_it_is_made_once_and_the_same_for_all(store: Store) -> None:
    some = await asyncio.gather(*(shared_secret(store.connection, store.keys) for _ in range(5)))
    assert len(set(some)) == 1 and len(some[0]) == 32
    await store.redis.set(store.keys.secret(), b"of before")
    assert await shared_secret(store.connection, store.keys) == b"of before"
