"""The cleanup of counters, on a clock that the test advances (rows C2 to C6)."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import structlog

from loadtest.servers import Server
from tests.store.harness import START, Clock, Store, running
from tests.workers.cleaning import known, with_slices
from tracker.store.schema.keys import Keys
from tracker.store.stats.counters import Counters
from tracker.store.stats.slices import PRECISIONS, RETAINED, oldest_retained, start_of
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.samples import clean_counters, due_precisions

DAY = 86400
AT_ONCE = START - START % DAY
"""A time at which every precision is due: 288 minutes divide a day."""


@pytest.fixture
async def store(any_server: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(any_server.url, Keys(prefix), SwarmRules(), Clock(AT_ONCE))) as store:
        yield store


async def slices(store: Store, precision: int, name: str) -> dict[int, int]:
    """As stored."""
    found = await store.redis.hgetall(store.keys.counter(precision, name))
    return {int(start): int(number) for start, number in found.items()}


def test_fine_precisions_are_cleaned_more_often() -> None:
    """C3: each at least once per slice, or once a minute."""
    visits = Counter(p for minute in range(1440) for p in due_precisions(AT_ONCE + 60 * minute + 17))
    assert {precision: visits[precision] for precision in (1, 5, 60, 300)} == dict.fromkeys((1, 5, 60, 300), 1440)
    longer = {900: 480, 3600: 120, 7200: 60, 18000: 24, 28800: 15, 86400: 5}
    assert {precision: visits[precision] for precision in PRECISIONS[4:]} == longer


async def test_two_days_of_counting_leave_bounded_slices(valkey: Server, prefix: str) -> None:
    """C3: at most 120 slices and one that has just ended; expired counters leave the index. C1, C2: the shown counts
    are right at any time. The cleanup runs every minute for two hours, then every twelfth minute, as if it missed
    runs.
    """
    rng = random.Random(5)
    async with running(Store(valkey.url, Keys(prefix), SwarmRules(), Clock(AT_ONCE))) as store:
        counted: dict[str, Counter[int]] = {"often": Counter(), "seldom": Counter(), "once": Counter()}
        store.counters.count("once")
        counted["once"][AT_ONCE] += 1
        for minute in (*range(120), *range(120, 2 * 1440, 12)):
            store.clock.now = AT_ONCE + 60 * minute
            events = [("often", AT_ONCE + 60 * minute + rng.randrange(60))] * rng.randrange(3)
            if rng.random() < 0.05:
                events.append(("seldom", AT_ONCE + 60 * minute - rng.randrange(5000)))
            for name, at in events:
                store.counters.count(name, at=at)
                counted[name][at] += 1
                if name == "often":
                    store.counters.observe("seconds", rng.random(), at=at)
            await store.counters.flush()
            store.clock.now += 59
            if minute % 60 == 0:
                await check_the_shown(store, counted)
            await clean_counters(store.counters, store.clock())
            if minute % 60 == 0:
                await check_the_stored(store)
        assert await store.counters.names() == ["often", "once", "seldom"]  # a slice of a day lives 120 days
        assert "18000:once" in await known(store) and "300:once" not in await known(store)
        store.clock.now = AT_ONCE + 125 * DAY
        await clean_counters(store.counters, store.clock())
        assert await known(store) == await with_slices(store) == set()


async def check_the_shown(store: Store, counted: dict[str, Counter[int]]) -> None:
    for precision in PRECISIONS:
        since = oldest_retained(store.clock.now, precision)
        for name, events in counted.items():
            expected: Counter[int] = Counter()
            for at, number in events.items():
                if (start := start_of(at, precision)) >= since:
                    expected[start] += number
            assert await store.counters.series(name, precision) == sorted(expected.items())


async def check_the_stored(store: Store) -> None:
    for precision in due_precisions(store.clock.now):
        for key in (store.keys.counter(precision, "often"), store.keys.distribution(precision, "seconds")):
            assert await store.redis.hlen(key) <= RETAINED + 1
    assert await known(store) == await with_slices(store)


async def test_expired_slices_go_and_others_stay(store: Store) -> None:
    """C3, C7: a slice in the future stays until it expires."""
    for age in (RETAINED + 5, RETAINED, RETAINED - 1, 0, -7):
        for precision in PRECISIONS:
            store.counters.count(f"n{precision}", at=AT_ONCE - age * precision)
    await store.counters.flush()
    assert await clean_counters(store.counters, store.clock()) > 0
    for precision in PRECISIONS:
        left = [start_of(AT_ONCE, precision) - age * precision for age in (RETAINED - 1, 0, -7)]
        assert sorted(await slices(store, precision, f"n{precision}")) == left
    store.clock.now += (RETAINED + 7) * DAY
    await clean_counters(store.counters, store.clock())
    assert await known(store) == await with_slices(store) == set()


async def test_slices_of_a_clock_far_ahead_are_bounded(store: Store) -> None:
    """A few slices in the future stay; many do not."""
    for second in range(1000):
        store.counters.count("n", at=AT_ONCE + 10**6 + second)
    for second in range(5):
        store.counters.count("m", at=AT_ONCE + 10**6 + second)
    store.counters.count("n")
    await store.counters.flush()
    await clean_counters(store.counters, store.clock())
    assert await slices(store, 1, "n") == {AT_ONCE: 1}
    assert len(await slices(store, 1, "m")) == 5


async def test_an_index_entry_without_slices_is_removed(store: Store) -> None:
    """C5."""
    for entry in ("1:gone", "60:gone: too", "86400:", "60:n"):
        await store.redis.zadd(store.keys.known_counters(), {entry: 0})
        await store.redis.zadd(store.keys.known_distributions(), {entry: 0})
    store.counters.count("n")
    await store.counters.flush()
    await clean_counters(store.counters, store.clock())
    assert await known(store) == {f"{precision}:n" for precision in PRECISIONS}
    assert await store.redis.exists(store.keys.known_distributions()) == 0


async def test_a_key_of_a_wrong_type_is_reported_and_kept(store: Store) -> None:
    store.counters.count("a", "b", at=AT_ONCE - 10**8)
    await store.counters.flush()
    await store.redis.set(store.keys.counter(60, "a"), "text")
    with structlog.testing.capture_logs() as logs:
        await clean_counters(store.counters, store.clock())
    assert [line["keys"] for line in logs if line["log_level"] == "error"] == [1]
    assert await known(store) == {"60:a"}


async def test_counts_during_a_cleanup_are_kept(store: Store) -> None:
    """C4, C6: several tasks count into expiring counters while two clean them up."""
    other = Counters(store.shards, store.clock)
    counted: Counter[tuple[str, int]] = Counter()
    rng = random.Random(3)

    async def count(counters: Counters) -> None:
        for number in range(40):
            for name in ("a", "b", "c:d"):
                old = rng.random() < 0.5  # expired in every precision but the last
                at = AT_ONCE - 50 * DAY if old else AT_ONCE
                counters.count(name, at=at)
                counters.observe(name, number, at=at)
                counted[name, at] += 1
            await counters.flush()

    async def clean() -> None:
        for _ in range(15):
            await clean_counters(store.counters, store.clock())

    async with asyncio.TaskGroup() as tasks:
        for counters in (store.counters, other):
            for _ in range(2):
                tasks.create_task(count(counters))
            tasks.create_task(clean())
    assert await known(store) == await with_slices(store)
    await clean()
    for name in ("a", "b", "c:d"):
        expected = {at: number for (of, at), number in counted.items() if of == name}
        for precision in PRECISIONS:
            shown = expected if precision == DAY else {AT_ONCE: expected[AT_ONCE]}
            assert await slices(store, precision, name) == {
                start_of(at, precision): number for at, number in shown.items()
            }
            _, total = await store.counters.distribution(name, precision)
            assert total is not None and total.count == sum(shown.values())
    assert await known(store) == await with_slices(store)


async def test_a_cleanup_may_be_cancelled_between_pages(store: Store) -> None:
    """C6: at any page, and another cleanup continues."""
    names = [f"n{number}" for number in range(9)]
    for turns in range(0, 200, 13):
        store.counters.count(*names, at=AT_ONCE - 10**8)
        store.counters.count("kept")
        await store.counters.flush()
        work = asyncio.Task(clean_counters(store.counters, store.clock(), 2))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert await known(store) == await with_slices(store)
    await clean_counters(store.counters, store.clock())
    assert await known(store) == {f"{precision}:kept" for precision in PRECISIONS}


async def test_a_full_store_can_be_cleaned(store: Store) -> None:
    """Cleaning frees memory, so the store accepts it."""
    store.counters.count("n", at=AT_ONCE - 10**8)
    await store.counters.flush()
    limit = (await store.redis.config_get("maxmemory"))["maxmemory"]
    try:
        await store.redis.config_set("maxmemory", 1)
        await clean_counters(store.counters, store.clock())
    finally:
        await store.redis.config_set("maxmemory", limit)
    assert await known(store) == set()
