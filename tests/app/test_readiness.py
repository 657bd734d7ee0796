"""Why a tracker is not ready: real servers, stopped and restricted."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.servers import Server
from tests.store.harness import Store
from tests.workers.jobs import until
from tracker.loops import running
from tracker.readiness import DEAF, STOPPING, STORE_AWAY, SWEEP_BEHIND, Readiness
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.workers.reaper import SWEEP_BEHIND as BEHIND_INTERVALS
from tracker.workers.reaper import Reaper

StartServer = Callable[..., Server]
INTERVAL = 3600.0


@asynccontextmanager
async def watched(url: str, *, work: bool = True) -> AsyncIterator[tuple[Store, Reaper, Readiness]]:
    store = Store(url, Keys("t:"), SwarmRules(), clock=time.time)  # type: ignore[arg-type]

    def now() -> float:
        return store.clock()

    reaper = Reaper(store.reaping, store.connection, store.keys, store.counters, INTERVAL, now)
    store.connection.on_return(reaper.note_return)
    try:
        async with AsyncExitStack() as stack:
            if work:
                await stack.enter_async_context(running(store.connection.watch, reaper.run))
            yield store, reaper, Readiness(store.connection, lambda: False, reaper)
    finally:
        await store.connection.close()


async def reached(readiness: Readiness, problems: list[str]) -> None:
    async def there() -> bool:
        return readiness.problems() == problems

    await until(there)


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("--appendonly", "no")


async def test_it_is_ready_when_the_reaper_hears(server: Server) -> None:
    async with watched(server.url) as (_, reaper, readiness):
        assert readiness.problems() == [DEAF]
        await reached(readiness, [])
        assert reaper.listening


async def test_a_store_that_is_away_is_the_only_thing_said(server: Server) -> None:
    """What follows from it needs no saying. When the store is back, so is the tracker."""
    async with watched(server.url) as (store, _, readiness):
        await reached(readiness, [])
        server.kill()
        await reached(readiness, [STORE_AWAY])
        server.start()
        await reached(readiness, [])
        assert not store.connection.away


async def test_a_sweep_that_does_not_end_is_said(server: Server) -> None:
    """Since the last round, or since the start."""
    async with watched(server.url) as (store, reaper, readiness):
        await reached(readiness, [])

        async def swept() -> bool:
            return reaper.swept_at > 0

        await until(swept)
        assert 0 < reaper.sweep_seconds < 60
        ahead = BEHIND_INTERVALS * INTERVAL + 60
        store.clock = lambda: time.time() + ahead  # type: ignore[assignment]
        assert readiness.problems() == [SWEEP_BEHIND]
        await reaper.sweep_once(0.0)
        await reached(readiness, [])


async def test_events_that_cannot_be_heard_are_no_problem(server: Server) -> None:
    """Where CONFIG or the channels are forbidden the due lists and the sweep do the work."""
    with server.client() as client:
        for name, rules in (("mute", ("-config", "allchannels")), ("deaf", ("resetchannels",))):
            client.execute_command("ACL", "SETUSER", name, "on", ">p", "~*", "+@all", *rules)
        client.config_set("notify-keyspace-events", "")
    for name in ("mute", "deaf"):
        async with watched(server.url.replace("unix://", f"unix://{name}:p@")) as (_, reaper, readiness):
            await reached(readiness, [])

            async def settled(name: str = name, reaper: Reaper = reaper) -> bool:
                return not reaper.deaf and reaper.listening == (name == "mute")

            await until(settled)


async def test_a_forbidden_subscription_is_said_once_and_does_not_hurry_the_sweep(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "deaf", "on", ">p", "~*", "+@all", "resetchannels")
    async with watched(server.url.replace("unix://", "unix://deaf:p@")) as (_, reaper, readiness):
        await reached(readiness, [])

        async def swept() -> bool:
            return reaper.swept_at > 0

        await until(swept)
        first = reaper.swept_at
        await asyncio.sleep(0.5)
        assert reaper.swept_at == first
    assert capsys.readouterr().out.count("forbids the subscription") == 1


async def test_the_stop_is_said_and_another_process_may_reap(server: Server) -> None:
    async with watched(server.url, work=False) as (store, _, _):
        stopping = False
        readiness = Readiness(store.connection, lambda: stopping, None)
        assert readiness.problems() == []
        stopping = True
        assert readiness.problems() == [STOPPING]
