"""How often the change feed tells which peers have announced."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.fake_time import FakeTime
from tests.store.changes.test_changes import RULES
from tests.store.harness import ALICE, Store, running, update
from tests.waiting import in_background
from tracker.store.schema.keys import Keys
from tracker.workers.webhooks import FeedUpdates


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), replace(RULES, note_updates=True))) as store:
        await store.users.add("7", ALICE)
        yield store


async def recorded(store: Store) -> int:
    return sum(each.change == "updated" for each in await store.changes.newest(100))


async def test_a_peer_is_recorded_at_most_once_in_so_many_seconds(store: Store) -> None:
    time = FakeTime()
    updates = FeedUpdates(store, lambda: 5, time.timer, time)
    await store.announce(update(1, "s", passkey=ALICE))
    found = []
    for _ in range(11):
        time.now += 1
        await store.pass_time(1)
        await store.announce(update(1, "u", passkey=ALICE, uploaded=int(time.now)))
        await updates.step()
        found.append(await recorded(store))
    assert found == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]


async def test_one_tracker_records_them(store: Store) -> None:
    def worker(time: FakeTime) -> FeedUpdates:
        return FeedUpdates(store, lambda: 5, time.timer, time)

    first, second = FakeTime(), FakeTime()
    async with in_background(worker(first).run()):
        await first.pass_by(1)
        async with in_background(worker(second).run()):
            await store.announce(update(1, "s", passkey=ALICE))
            await store.pass_time(1)
            await store.announce(update(1, "u", passkey=ALICE, uploaded=1))
            await second.pass_by(20)
            assert not await recorded(store)
            await first.pass_by(20)
            assert await recorded(store) == 1
