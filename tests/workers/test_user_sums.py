"""The worker that keeps users of several shards alike."""

from collections.abc import AsyncIterator

import pytest

from tests.fake_time import FakeTime
from tests.store.harness import ALICE, Store, running, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import in_background
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.users import UserCopiesWorker


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    rules = SwarmRules(accounts="required")
    async with running(Store(redis_url, Keys(prefix), rules, shards=SHARDS)) as store:
        await store.upgrade()
        await store.users.add("7", ALICE)
        yield store


def worker(store: Store, time: FakeTime, held: list[int]) -> UserCopiesWorker:
    return UserCopiesWorker(store, lambda: held, time)


async def test_rows_multipliers_and_sums_are_kept_alike(store: Store) -> None:
    """Of shards that are this tracker's."""
    time = FakeTime()
    for shard in range(SHARDS):
        await store.announce(update(1, "s", info_hash=hash_in(shard), passkey=ALICE))
    await store.announce_counts.flush()
    await store.redis.delete(*(shard.keys.passkey(ALICE) for shard in store.shards))
    await store.redis.delete(*(shard.keys.copied() for shard in store.shards))
    await store.redis.set(store.keys.upload_multiplier(), "2")

    async def announces() -> int:
        return int(await store.redis.hget(store.keys.user("7"), "announces") or 0)

    async def is_summed() -> bool:
        return await announces() == SHARDS

    async def is_copied(number: int) -> bool:
        keys = store.shards[number].keys
        both = await store.redis.mget(keys.upload_multiplier(), keys.copied())
        return both[0] == b"2" and bool(await store.redis.exists(keys.passkey(ALICE))) and both[1] is not None

    async with in_background(worker(store, time, [1, 2]).run()):
        await time.pass_until(is_summed)
        await time.pass_until(lambda: is_copied(2))
    assert await is_copied(1) and not await is_copied(3)


async def test_it_survives_a_store_that_is_unavailable_and_a_key_of_a_wrong_type(store: Store) -> None:
    time, held = FakeTime(), list(range(SHARDS))
    wrong = store.shards[0].keys.changed()
    await store.redis.set(wrong, "text")
    store.connection.unavailable = True
    async with in_background(worker(store, time, held).run()):
        await time.pass_by(10)
        store.connection.unavailable = False
        await store.announce(update(1, "s", info_hash=hash_in(3), passkey=ALICE))
        await store.announce_counts.flush()
        key = store.keys.user("7")
        await time.pass_until(lambda: store.redis.hexists(key, "announces"))
