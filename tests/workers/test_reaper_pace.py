"""The share of the store's time that the sweep takes (row T9)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from structlog.testing import capture_logs

from tests.store.harness import Clock, Store, update
from tracker.store.swarms.reaping import Reaping, SweepStep
from tracker.workers.reaper import MAX_PAUSE_SECONDS, SWEEP_BUDGET, Reaper

PEERS = 4 * SWEEP_BUDGET


class Timed:
    """A store's reaping that records the duration of its sweeps."""

    def __init__(self, reaping: Reaping) -> None:
        self._reaping = reaping
        self.size, self.page, self.check_totals = reaping.size, reaping.page, reaping.check_totals
        self.save_peer_counts = reaping.save_peer_counts
        self.calls, self.seconds = 0, 0.0

    async def sweep(self, torrent_ids: Sequence[str], position: str, budget: int, denied: Sequence[bytes]) -> SweepStep:
        began = asyncio.get_running_loop().time()
        try:
            return await self._reaping.sweep(torrent_ids, position, budget, denied)
        finally:
            self.calls += 1
            self.seconds += asyncio.get_running_loop().time() - began


async def test_a_hurried_sweep_takes_a_third_of_the_stores_time(store: Store) -> None:
    """At most, between two calls."""
    for peer in range(PEERS):
        await store.announce(update(peer, "s"))
    reaper, timed = Reaper(store, store.shards.main, lambda: 60, store.clock), Timed(store.reaping)
    reaper.reaping = timed  # type: ignore[assignment]
    began = asyncio.get_running_loop().time()
    await reaper.sweep_once(hurry=True)
    taken = asyncio.get_running_loop().time() - began
    assert timed.calls >= PEERS // SWEEP_BUDGET
    assert taken >= 3 * timed.seconds * 0.99


INTERVAL = 60.0


class Waiting:
    """A clock that advances only while the sweep pauses, and actions at given times."""

    def __init__(self, store: Store, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self.timer = Clock()
        self._store = store
        self._meanwhile = meanwhile
        self.pauses: list[float] = []
        self.behind = False
        self.reaper = Reaper(store, store.shards.main, lambda: INTERVAL, store.clock, timer=self.timer, wait=self.wait)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        self.pauses.append(seconds)
        self.timer.now += seconds
        await self._store.pass_time(seconds)
        await self._meanwhile()
        self.behind = self.behind or self.reaper.sweep_behind


async def join_many(store: Store, first: int, count: int) -> None:
    """Torrents of a hundred peers each, so that each takes one call of the sweep."""
    await asyncio.gather(*(store.announce(update(n, "s", n // 100)) for n in range(first, first + count)))


async def join_one(store: Store, first: int, count: int) -> None:
    """All peers in one torrent, which takes many calls."""
    await asyncio.gather(*(store.announce(update(n, "s")) for n in range(first, first + count)))


async def test_a_round_ends_in_time_while_the_tracker_grows(store: Store) -> None:
    """The tracker grows tenfold, and the round ends within the interval."""
    await join_one(store, 0, 500)
    grown = 500

    async def grow() -> None:
        nonlocal grown
        if grown < 5000:
            await join_one(store, grown, 500)
            grown += 500

    waiting = Waiting(store, grow)
    began = waiting.timer.now
    with capture_logs() as logs:
        await waiting.reaper.sweep_once(hurry=False)
    assert grown == 5000
    assert len(waiting.pauses) > 50
    assert waiting.timer.now - began <= INTERVAL
    assert max(waiting.pauses) <= MAX_PAUSE_SECONDS
    assert waiting.reaper.swept_at and not waiting.behind
    assert not [line for line in logs if line["event"] == "sweep is late"]


async def test_a_late_round_is_logged_once(store: Store) -> None:
    """The store is too slow; the round continues without pauses."""
    await join_many(store, 0, 400)
    waiting: Waiting

    async def stall() -> None:
        waiting.timer.now += 2 * INTERVAL

    waiting = Waiting(store, stall)
    with capture_logs() as logs:
        await waiting.reaper.sweep_once(hurry=False)
    late = [line for line in logs if line["event"] == "sweep is late"]
    assert [line["log_level"] for line in late] == ["warning"]
    assert 0 < late[0]["visited"] <= late[0]["of"]
    assert len(waiting.pauses) == 1


async def test_a_requested_round_shortens_the_pauses_of_the_current_one(store: Store) -> None:
    """As after an outage."""
    await join_many(store, 0, 400)
    reaper = Reaper(store, store.shards.main, lambda: 86_400, store.clock)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(reaper.sweep_once(hurry=False))
        await store.redis.ping()
        await reaper.on_reconnect()
    assert reaper.swept_at


async def test_a_new_interval_counts_from_its_change_on(store: Store) -> None:
    """A shorter interval does not make a sweep late that began under the longer one."""
    interval, timer = 3600, Clock()
    reaper = Reaper(store, store.shards.main, lambda: interval, store.clock, timer)
    await reaper.sweep_once(hurry=True)
    timer.now += 3600
    interval = 60
    assert not reaper.sweep_behind
    timer.now += 200
    assert reaper.sweep_behind


async def test_a_step_of_the_clock_makes_no_sweep_late(store: Store) -> None:
    """The tracker stays ready."""
    timer = Clock()
    reaper = Reaper(store, store.shards.main, lambda: 60, store.clock, timer)
    await reaper.sweep_once(hurry=True)
    store.clock.now += 7200
    assert not reaper.sweep_behind
    store.clock.now -= 14_400
    timer.now += 200
    assert reaper.sweep_behind


@pytest.mark.parametrize("value", ["x", "9" * 5000, "-3"])
async def test_invalid_fields_in_the_store_do_not_stop_the_sweep(store: Store, value: str) -> None:
    await join_many(store, 0, 3)
    await store.redis.set(store.keys.stat("seeders"), value)
    await store.redis.delete(store.keys.stat("leechers"))
    await store.redis.lpush(store.keys.stat("leechers"), "x")
    assert await store.reaping.size() >= 1
