"""The right to run the node of a name: one tracker of a store has it."""

import asyncio

from tests.fake_time import FakeTime
from tests.store.harness import START, Store
from tests.waiting import in_background
from tracker.workers.dht import LEASE_SECONDS, NameLease


def lease_of(store: Store, time: FakeTime, name: str = "host") -> NameLease:
    return NameLease(store.scripts, name, lambda: START + time.now, time)


async def test_a_second_tracker_waits_until_the_first_has_ended(store: Store) -> None:
    time = FakeTime()
    first, second = (lease_of(store, time) for _ in range(2))
    await first.acquire()
    await lease_of(store, time, "other").acquire()
    async with in_background(first.until_lost(), second.acquire()):
        await time.pass_by(10 * LEASE_SECONDS)
        assert (first.held, second.held) == (True, False)
    await second.release()  # it has nothing to release
    async with in_background(second.acquire()):
        await time.pass_by(LEASE_SECONDS / 2)
        assert not second.held
        await first.release()
        await time.pass_until(lambda: second.held)


async def test_a_tracker_that_vanished_is_replaced_when_its_lease_ends(store: Store) -> None:
    """Within ten seconds, so soon after ``kill -9``."""
    time = FakeTime()
    first, second = lease_of(store, time), lease_of(store, time)
    await first.acquire()
    async with in_background(second.acquire()):
        await time.pass_by(LEASE_SECONDS - 2)
        assert not second.held
        await time.pass_until(lambda: second.held)
    assert LEASE_SECONDS <= time.now <= 8
    await asyncio.wait_for(first.until_lost(), 60)
    assert not first.held


async def test_without_the_store_a_lease_is_kept_and_none_is_acquired(store: Store) -> None:
    time = FakeTime()
    first, second = lease_of(store, time), lease_of(store, time, "other")
    await first.acquire()
    store.connection.unavailable = True
    async with in_background(second.acquire(), first.until_lost()):
        await time.pass_by(2 * LEASE_SECONDS)
        assert first.held and not second.held
        store.connection.unavailable = False
        await time.pass_until(lambda: second.held)
        assert first.held
