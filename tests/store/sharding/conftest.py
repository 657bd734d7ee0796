from collections.abc import AsyncIterator

import pytest

from tests.store.harness import Store, running
from tests.store.sharding.harness import SHARDS, one_and_several
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """Four shards, public and open."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules(max_changes=1000), shards=SHARDS)) as store:
        yield store


@pytest.fixture
async def both(redis_url: str, prefix: str) -> AsyncIterator[tuple[Store, Store]]:
    """A store with one shard, and one with four."""
    async with one_and_several(redis_url, prefix) as stores:
        yield stores
