from collections.abc import AsyncIterator

import pytest

from tests.store.harness import Store, running
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        yield store
