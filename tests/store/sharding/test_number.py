"""The number of shards is fixed when a store is made."""

import pytest

from tests.store.harness import Store, running
from tracker.errors import StartupError
from tracker.store.client.connection import Connection, connect
from tracker.store.schema.keys import Keys
from tracker.store.sharding.number import check_number
from tracker.store.swarms.rules import SwarmRules


async def check(url: str, prefix: str, shards: int) -> None:
    connection = Connection(connect(url, connect_timeout=5, timeout=5))
    try:
        await check_number(connection, prefix, shards)
    finally:
        await connection.close()


async def test_a_start_with_another_number_is_refused(redis_url: str, prefix: str) -> None:
    await check(redis_url, prefix, 4)
    await check(redis_url, prefix, 4)
    for other in (1, 8):
        with pytest.raises(StartupError, match=r"made with 4 shards.*TRACKER_REDIS__SHARDS=4"):
            await check(redis_url, prefix, other)


async def test_a_store_of_one_shard_is_not_split(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        await store.reaping.heartbeat()
        await store.check_shards()
        with pytest.raises(StartupError, match=r"made with 1 shard: .*TRACKER_REDIS__SHARDS=1"):
            await check(redis_url, prefix, 4)
        assert await store.redis.keys(f"{prefix}*shards*") == []


async def test_the_shards_know_the_secret(store: Store) -> None:
    """Announces hash the key of a client with it."""
    secret = await store.load_secret()
    for shard in store.shards:
        await store.copy_secret(shard)
        assert await store.redis.get(shard.keys.secret()) == secret
