"""Client programs are counted behind the announce path: bounded, in batches, and once whatever the store does."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from tests.servers import Server
from tests.store.harness import Clock, Store, running
from tests.store.proxy import Proxy
from tracker.bittorrent import PeerId
from tracker.store.keys import Keys
from tracker.store.months import month_of, month_start
from tracker.store.software import MAX_BATCH, Heard, Software
from tracker.store.swarms import SwarmRules
from tracker.workers import software
from tracker.workers.software import FAMILIAR, MOST_WAITING, Census

SECONDS = 20.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "SEND_SECONDS", 0.02)


def called(name: str) -> PeerId:
    """A peer id of the program ``name`` (see ``Work``)."""
    return PeerId(name.encode().ljust(20, b" "))


@dataclass
class Work:
    """A census, and what it told; programs are named in plain text in their peer ids."""

    store: Store
    software: Software | None = None
    clock: Clock = field(default_factory=Clock)
    counts: "Counter[str]" = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.census = Census(
            self.software or self.store.software,
            name=lambda peer_id: peer_id.decode().strip(),
            count=self.count,
            clock=self.clock,
        )

    def count(self, *names: str, by: int = 1) -> None:
        for name in names:
            self.counts[name] += by

    def note(self, *names: str, label: str = "", times: int = 1) -> None:
        for name in names * times:
            self.census.note(called(name), label)

    async def joins(self) -> dict[str, int]:
        return dict(await self.store.software.top("joins", count=10_000))

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """The census and the store's watch run; the census stops as a killed one would."""
        tasks = [asyncio.Task(self.census.run()), asyncio.Task(self.store.connection.watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < SECONDS
        await asyncio.sleep(0.01)


async def sent(work: Work) -> None:
    async def done() -> bool:
        return work.census.waiting == 0

    await until(done)


class Recorded(Software):
    """Remembers the batches, and fails as often as it is told."""

    failures = 0

    async def add(self, number: int, heard: Mapping[Heard, int], now: float) -> None:
        self.batches = [*getattr(self, "batches", []), (number, len(heard), now)]
        if self.failures:
            self.failures -= 1
            raise ResponseError("the script failed")
        await super().add(number, heard, now)


def recorded(store: Store) -> Recorded:
    return Recorded(store.connection, store.scripts, store.keys)


async def test_joins_and_refusals_add_up(store: Store) -> None:
    work = Work(store)
    work.note("qB", times=3)
    work.note("TR")
    work.note("qB", label="denied", times=2)
    assert work.census.waiting == 6
    async with work.at_work():
        await sent(work)
        work.note("qB")
        await sent(work)
    assert await store.software.top("joins") == [("qB", 4), ("TR", 1)]
    assert await store.software.top("failures") == [("qB: denied", 2)]
    assert not work.counts


async def test_little_is_sent_when_little_is_heard(store: Store) -> None:
    """In batches of bounded size; silence costs nothing."""
    programs = recorded(store)
    work = Work(store, programs)
    work.note(*(f"x{n}" for n in range(2 * MAX_BATCH + 50)))
    work.note("x0", times=5000)
    await work.census.flush()
    assert [size for _, size, _ in programs.batches] == [MAX_BATCH] * 2 + [50]
    await work.census.flush()
    assert len(programs.batches) == 3
    assert (await work.joins())["x0"] == 5001


async def test_the_month_is_that_of_the_sending(store: Store) -> None:
    work = Work(store)
    work.note("qB")
    await work.census.flush()
    work.clock.now = month_start(work.clock.now, 1).timestamp()
    work.note("qB", times=2)
    await work.census.flush()
    assert await store.software.top("joins", month_of(work.clock.now)) == [("qB", 2)]


async def test_what_is_heard_is_made_fit_to_be_stored(store: Store) -> None:
    """Names that are the same then add up."""
    work = Work(store)
    work.note("a\x1b", "a\x07", "", label="b\nb")
    await work.census.flush()
    assert await store.software.top("failures") == [("a?: b b", 2), ("unknown: b b", 1)]


# Invented names


async def test_so_many_names_are_kept_and_the_rest_dropped_and_counted(store: Store) -> None:
    work = Work(store)
    work.note(*(f"x{n}" for n in range(MOST_WAITING + 50)))
    work.note("x0")
    assert (work.census.waiting, work.counts) == (MOST_WAITING + 1, {"software_dropped": 50})
    await work.census.flush()
    assert sum((await work.joins()).values()) == MOST_WAITING + 1


async def test_a_flood_of_names_does_not_drive_out_the_familiar(store: Store) -> None:
    """Whoever is heard often keeps a place; whoever is heard no more loses it."""
    work = Work(store)
    real = [f"real{n}" for n in range(FAMILIAR)]
    work.note(*real, times=2)
    work.note(*(f"a{n}" for n in range(MOST_WAITING)))
    await work.census.flush()
    for wave in "bc":
        work.note(*(f"{wave}{n}" for n in range(MOST_WAITING)))
        work.note(*real, times=2)
        await work.census.flush()
    joins = await work.joins()
    assert {joins.get(name) for name in real} == {6}
    for wave in "de":
        work.note(*(f"{wave}{n}" for n in range(MOST_WAITING)), times=3)
        await work.census.flush()
    dropped = work.counts["software_dropped"]
    work.note(*(f"f{n}" for n in range(MOST_WAITING - FAMILIAR)))
    work.note(*real)
    assert work.counts["software_dropped"] == dropped + FAMILIAR


async def test_drops_are_said_in_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "LOG_SECONDS", 0.01)
    work = Work(store)
    work.note(*(f"x{n}" for n in range(MOST_WAITING + 50)))
    with capture_logs() as logs:

        async def told() -> bool:
            return bool(logs)

        async with work.at_work():
            await until(told)
            await asyncio.sleep(0.1)
    assert [(line["log_level"], line["events"]) for line in logs] == [("warning", 50)]


# The store fails


@pytest.fixture
async def own(start_server: Callable[..., Server], prefix: str) -> AsyncIterator[tuple[Server, Work]]:
    """A server of the test's own, and a census on it."""
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        yield server, Work(store)


async def test_a_store_that_is_away_delays_and_loses_nothing(own: tuple[Server, Work]) -> None:
    server, work = own
    async with work.at_work():
        work.note("qB", times=10)
        await sent(work)
        server.stop()
        work.note("qB", "TR", times=100)
        await asyncio.sleep(0.3)
        assert work.census.waiting == 200
        server.start()
        await sent(work)
    assert await work.joins() == {"qB": 110, "TR": 100}
    assert not work.counts


async def test_a_lost_answer_counts_once(valkey: Server, prefix: str) -> None:
    """The store has the batch, the census does not know, and sends it again, as it was."""
    async with Proxy(valkey) as proxy:
        async with running(Store(proxy.url, Keys(prefix), SwarmRules())) as far:
            programs = recorded(far)
            work = Work(far, programs)
            async with work.at_work():
                work.note("qB")  # opens a connection, and brings the script to the server
                await sent(work)
                proxy.swallow_answers()
                work.note("qB", "TR")
                work.clock.now += 7
                await sent(work)
            assert programs.batches[1:] == [programs.batches[1]] * (len(programs.batches) - 1)
            assert len(programs.batches) >= 3
            assert await work.joins() == {"qB": 2, "TR": 1}


async def test_a_full_store_is_waited_for(own: tuple[Server, Work]) -> None:
    _, work = own
    await work.store.redis.config_set("maxmemory", 1)
    async with work.at_work():
        work.note("qB", times=10)
        await asyncio.sleep(0.3)
        assert work.census.waiting == 10
        await work.store.redis.config_set("maxmemory", 0)
        await sent(work)
    assert await work.joins() == {"qB": 10}
    assert not work.counts


@pytest.mark.parametrize(("failures", "dropped"), [(2, 0), (5, 10)])
async def test_a_batch_that_always_fails_does_not_stop_the_others(
    store: Store, failures: int, dropped: int
) -> None:
    programs = recorded(store)
    programs.failures = failures
    work = Work(store, programs)
    async with work.at_work():
        work.note("qB", times=10)
        await sent(work)
        work.note("qB", times=5)
        await sent(work)
    assert work.counts["software_dropped"] == dropped
    assert await work.joins() == {"qB": 15 - dropped}


# The end


async def test_a_graceful_stop_counts_what_waits(store: Store) -> None:
    """Also when the loop was cancelled in the middle of a batch."""
    work = Work(store)
    async with work.at_work():
        for number in range(5):
            work.note(*(f"x{n}" for n in range(500)))
            await asyncio.sleep(0.01 * number)
    await work.census.flush()
    assert await work.joins() == {f"x{n}": 5 for n in range(500)}
    assert (work.census.waiting, work.counts["software_dropped"]) == (0, 0)


async def test_a_stop_does_not_wait_for_a_store_that_is_away(own: tuple[Server, Work]) -> None:
    """What is lost is counted and said."""
    server, work = own
    server.kill()
    work.note("qB", times=100)
    with capture_logs() as logs:
        async with asyncio.timeout(SECONDS):
            await work.census.flush()
    assert (work.census.waiting, work.counts["software_dropped"]) == (0, 100)
    assert [line["events"] for line in logs if "stop" in line["event"]] == [100]


async def test_a_stop_takes_no_longer_than_it_may(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "FLUSH_SECONDS", 0.05)

    class Slow(Software):
        async def add(self, number: int, heard: Mapping[Heard, int], now: float) -> None:
            await asyncio.sleep(60)

    work = Work(store, Slow(store.connection, store.scripts, store.keys))
    work.note("qB", times=100)
    async with asyncio.timeout(SECONDS):
        await work.census.flush()
    assert work.counts["software_dropped"] == 100
