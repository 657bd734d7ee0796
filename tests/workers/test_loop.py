"""Background work goes on until cancelled, in one of several trackers, whatever the store does."""

import asyncio
import random
from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.fake_time import FakeTime
from tests.store.harness import START, Store, running
from tests.waiting import eventually, in_background
from tracker.errors import StoreUnavailable
from tracker.store.jobs.lease import Lease
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.loop import follow, forever, pause_until_next, until_next

SECONDS = 15


class Steps:
    """Counts its calls, and raises ``error``."""

    def __init__(self, time: FakeTime) -> None:
        self.at: list[float] = []
        self.error: Exception | None = None
        self._time = time

    async def __call__(self) -> None:
        self.at.append(self._time.now)
        if self.error is not None:
            raise self.error


def lease_of(store: Store, time: FakeTime, name: str = "work") -> Lease:
    return Lease(store.scripts, "samples", name, SECONDS, lambda: START + time.now)


async def test_a_step_runs_with_pauses_between() -> None:
    time = FakeTime()
    steps = Steps(time)
    async with in_background(forever(steps, 5.0, sleep=time)):
        await time.pass_until(lambda: len(steps.at) == 4)
    assert steps.at == [0, 5, 10, 15]


async def test_an_error_of_the_store_is_logged_and_another_pause_follows() -> None:
    time = FakeTime()
    steps = Steps(time)
    steps.error = ResponseError("WRONGTYPE")
    with capture_logs() as logs:
        async with in_background(forever(steps, 5.0, "cannot do it", error_seconds=60.0, sleep=time)):
            await time.pass_until(lambda: len(steps.at) == 2)
            steps.error = None
            await time.pass_until(lambda: len(steps.at) == 4)
    assert steps.at == [0, 60, 120, 125]
    assert [(line["event"], line["error"]) for line in logs] == 2 * [("cannot do it", "WRONGTYPE")]


async def test_any_other_error_ends_it() -> None:
    steps = Steps(FakeTime())
    steps.error = ValueError("a fault of ours")
    with pytest.raises(ValueError, match="a fault of ours"):
        await forever(steps, 5.0)


async def test_without_a_connection_an_unavailable_store_is_a_pause_without_a_line() -> None:
    time = FakeTime()
    steps = Steps(time)
    steps.error = StoreUnavailable("no reply")
    with capture_logs() as logs:
        async with in_background(forever(steps, 5.0, sleep=time)):
            await time.pass_until(lambda: len(steps.at) == 3)
    assert steps.at == [0, 5, 10] and logs == []


async def test_the_step_runs_again_as_soon_as_the_store_is_back(start_server: Callable[..., Server]) -> None:
    server = start_server()
    async with running(Store(server.url, Keys("t:"), SwarmRules())) as store:
        done = 0

        async def step() -> None:
            nonlocal done
            await store.connection.command("PING")
            done += 1

        loop = forever(step, 0.001, error_seconds=1e6, connection=store.connection)
        async with in_background(loop, store.connection.watch()):
            await eventually(lambda: done > 0)
            await asyncio.to_thread(server.kill)
            await eventually(lambda: store.connection.unavailable)
            before = done
            await asyncio.to_thread(server.start)
            await eventually(lambda: done > before)


async def no_pause(_: float) -> None:
    """Instead of a pause; the lease does not end meanwhile."""
    await asyncio.sleep(0)


async def test_one_of_two_trackers_does_it_and_the_other_takes_over(store: Store) -> None:
    time = FakeTime()
    first, second = Steps(time), Steps(time)
    loops = [forever(steps, 5.0, lease=lease_of(store, time), sleep=no_pause) for steps in (first, second)]
    async with in_background(loops[1]):
        async with in_background(loops[0]):
            await eventually(lambda: max(len(first.at), len(second.at)) > 20)
            assert min(len(first.at), len(second.at)) == 0
        before = len(second.at)  # the first one released the lease, if it had it
        await eventually(lambda: len(second.at) > before)


async def test_a_tracker_without_the_lease_asks_for_it_after_the_pause_of_errors(store: Store) -> None:
    """Also where the steps themselves take all the time."""
    time = FakeTime()
    steps, pauses = Steps(time), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.Event().wait()

    assert await lease_of(store, time).hold()
    async with in_background(forever(steps, 0.0, error_seconds=5.0, lease=lease_of(store, time), sleep=pause)):
        await eventually(lambda: pauses == [5.0])
    assert not steps.at


async def test_a_lease_ends_by_itself_and_its_former_holder_notices(store: Store) -> None:
    time = FakeTime()
    first, second = lease_of(store, time), lease_of(store, time)
    assert await first.hold()
    time.now += SECONDS - 1
    assert not await second.hold()
    time.now += 1
    assert await second.hold()
    assert not await first.hold() and not first.held
    await first.release()  # it is not the first one's
    assert not await lease_of(store, time).hold()
    await second.release()
    assert await lease_of(store, time).hold()


async def test_a_lease_of_a_tracker_whose_clock_was_ahead_is_taken(store: Store) -> None:
    """Of another tracker whose clock differs a little, it is not."""
    time, ahead = FakeTime(), FakeTime()
    ahead.now = 30
    await lease_of(store, ahead).hold()
    assert not await lease_of(store, time).hold()
    ahead.now = 7200
    await lease_of(store, ahead, "other").hold()
    assert await lease_of(store, time, "other").hold()


async def test_leases_of_a_kind_are_counted_and_those_that_ended_long_ago_forgotten(store: Store) -> None:
    time = FakeTime()
    assert [await lease_of(store, time, name).hold() for name in "abc"] == [1, 2, 3]
    time.now += SECONDS
    assert await lease_of(store, time, "d").hold() == 1
    time.now += 3600
    assert await lease_of(store, time, "e").hold() == 1
    assert await store.redis.zrange(store.keys.leases("samples"), 0, -1) == [b"d", b"e"]


async def test_messages_are_followed_also_after_the_connection_was_lost(store: Store) -> None:
    heard: list[bytes | None] = []

    async def handle(payload: bytes | None) -> None:
        heard.append(payload)

    channel = store.keys.channel("whitelist")
    async with in_background(follow(store.connection, channel, handle), store.connection.watch()):
        await eventually(lambda: heard == [None])
        await store.redis.publish(channel, b"one")
        await eventually(lambda: heard == [None, b"one"])
        await store.connection.command("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: heard == [None, b"one", None])
        await store.redis.publish(channel, b"two")
        await eventually(lambda: heard[-1] == b"two")


def test_pauses_end_together_whenever_they_began() -> None:
    for now in (random.Random(1).uniform(0, 1e6) for _ in range(1000)):
        pause = pause_until_next(5.0, now)
        assert 1.25 <= pause <= 6.25
        assert min((now + pause) % 5, 5 - (now + pause) % 5) < 1e-6


def test_a_timer_that_ends_early_is_followed_by_a_whole_pause() -> None:
    assert pause_until_next(0.5, 9.999) == pytest.approx(0.501)
    assert pause_until_next(0.5, 10.0) == 0.5


async def test_it_waits_by_the_clock_of_the_event_loop() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until_next(0.01)
    assert loop.time() - began < 60
    assert int(loop.time() / 0.01) > int(began / 0.01)


async def test_a_step_may_say_how_long_the_pause_after_it_is() -> None:
    time, at = FakeTime(), list[float]()

    async def step() -> float:
        at.append(time.now)
        if len(at) == 3:
            raise StoreUnavailable
        return float(len(at))

    async with in_background(forever(step, None, error_seconds=60.0, sleep=time)):
        await time.pass_until(lambda: len(at) == 4)
    assert at == [0, 1, 3, 63]


async def test_a_step_that_says_its_pauses_has_one_after_an_error_as_well() -> None:
    time = FakeTime()
    steps = Steps(time)
    steps.error = StoreUnavailable("no reply")
    async with in_background(forever(steps, None, sleep=time)):
        await time.pass_until(lambda: len(steps.at) == 3)
    assert steps.at == [0, 1, 2]
