"""Stores with several numbers of shards, and a run of reshard between two of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.store.harness import Clock, Store, running
from tracker.store.resharding.parts import PAGE, Parts
from tracker.store.resharding.reshard import Counts, Reshard, count
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

LATER = 100
"""Seconds after which no tracker is taken to run."""
Open = Callable[..., Any]


@pytest.fixture
async def open_store(redis_url: str, prefix: str) -> AsyncIterator[Open]:
    """Opens a store by the end of its prefix and its number of shards. All have the same clock."""
    clock = Clock()
    async with AsyncExitStack() as stack:

        async def open_one(name: str, shards: int = 1, url: str = redis_url, **rules: Any) -> Store:
            store = Store(url, Keys(f"{prefix}{name}:"), SwarmRules(max_changes=1000, **rules), clock, shards)
            return await stack.enter_async_context(running(store))

        yield open_one


def resharding(source: Store, target: Store, page: int = PAGE) -> Reshard:
    return Reshard(Parts(source, page), Parts(target))


async def reshard(source: Store, target: Store) -> tuple[Counts, Counts]:
    """Runs it to its end. Returns the counts before and after."""
    source.clock.now += LATER
    run = resharding(source, target)
    await run.check()
    before = await count(Parts(source))
    async for _ in run.copy():
        pass
    await run.join()
    return before, await run.finish(before)
