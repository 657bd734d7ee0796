"""Trackers share the shards of a store, and take over those of a tracker that has ended."""

from collections.abc import AsyncIterator

import pytest

from tests.fake_time import FakeTime
from tests.store.harness import START, Store, running
from tests.waiting import in_background
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.shard_reapers import LEASE_SECONDS, ROUND_SECONDS, LeaseKeeper

SHARDS = 8


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=SHARDS)) as store:
        yield store


def keeper(store: Store, time: FakeTime, name: str) -> LeaseKeeper:
    return LeaseKeeper(store, name, lambda: START + time.now, time)


async def test_two_trackers_share_the_shards(store: Store) -> None:
    time = FakeTime()
    first, second = keeper(store, time, "first"), keeper(store, time, "second")
    async with in_background(first.run()):
        await time.pass_until(lambda: first.held == list(range(SHARDS)))
        async with in_background(second.run()):
            await time.pass_until(lambda: len(first.held) == len(second.held) == SHARDS / 2)
            assert sorted(first.held + second.held) == list(range(SHARDS))
        assert second.held == []
        await time.pass_until(lambda: first.held == list(range(SHARDS)))


async def test_shards_of_a_tracker_that_vanished_are_taken_when_its_leases_end(store: Store) -> None:
    time = FakeTime()
    gone, other = keeper(store, time, "gone"), keeper(store, time, "other")
    await gone.round()
    await other.round()
    assert (len(gone.held), other.held) == (SHARDS, [])
    time.now += LEASE_SECONDS - ROUND_SECONDS
    await other.round()
    assert other.held == []
    time.now += ROUND_SECONDS + 1
    await other.round()
    assert len(other.held) == SHARDS


async def test_a_tracker_that_vanished_with_its_clock_ahead_leaves_all_shards_to_others(store: Store) -> None:
    ahead = FakeTime()
    ahead.now = 7200.0
    gone, other = keeper(store, ahead, "gone"), keeper(store, FakeTime(), "other")
    await gone.round()
    await other.round()
    assert other.held == list(range(SHARDS))


async def test_trackers_whose_clocks_differ_do_not_both_have_a_shard(store: Store) -> None:
    time, ahead = FakeTime(), FakeTime()
    ahead.now = 100.0
    behind, other = keeper(store, time, "behind"), keeper(store, ahead, "other")
    await other.round()
    for _ in range(5):
        await behind.round()
        await other.round()
        assert (behind.held, other.held) == ([], list(range(SHARDS)))
        time.now += ROUND_SECONDS
        ahead.now += ROUND_SECONDS


async def test_a_tracker_that_lost_its_leases_stops(store: Store) -> None:
    time = FakeTime()
    slow, other = keeper(store, time, "slow"), keeper(store, time, "other")
    await slow.round()
    time.now += LEASE_SECONDS + 1
    await other.round()
    assert len(other.held) == SHARDS
    await slow.round()
    assert slow.held == []


async def test_without_the_store_leases_are_kept(store: Store) -> None:
    """No other tracker can take them then."""
    time = FakeTime()
    first = keeper(store, time, "first")
    await first.round()
    store.connection.unavailable = True
    time.now += 10 * LEASE_SECONDS
    await first.round()
    assert len(first.held) == SHARDS


async def test_a_shard_is_awaited_until_it_is_held_and_until_it_is_lost(store: Store) -> None:
    time = FakeTime()
    first = keeper(store, time, "first")
    await first.until(3, held=False)
    async with in_background(first.run()):
        await first.until(3, held=True)
    await first.until(3, held=False)
