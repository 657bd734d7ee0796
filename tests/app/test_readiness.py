"""Readiness with real servers: stopped, restarted, and with restricted users."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import pytest
from redis import Redis
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.store.harness import Store
from tests.waiting import eventually, until
from tracker.app.web import NO_EXPIRY_EVENTS, STOPPING, SWEEP_BEHIND, find_problems
from tracker.errors import StoreUnavailable
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.system.event_loop import running
from tracker.workers.reaper import SWEEP_BEHIND as BEHIND_INTERVALS
from tracker.workers.reaper import Reaper

StartServer = Callable[..., Server]
INTERVAL = 3600.0


@asynccontextmanager
async def monitored(
    url: str, *, work: bool = True, timer: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[Store, Reaper, Callable[[], list[str]]]]:
    store = Store(url, Keys("t:"), SwarmRules(), clock=time.time)  # type: ignore[arg-type]
    reaper = Reaper(store, store.shards.main, lambda: INTERVAL, time.time, timer)
    store.connection.on_reconnect(reaper.on_reconnect)
    try:
        async with AsyncExitStack() as stack:
            if work:
                await stack.enter_async_context(running(store.connection.watch, reaper.run))
            yield store, reaper, partial(find_problems, store.shards, reaper)
    finally:
        await store.connection.close()


async def becomes(readiness: Callable[[], list[str]], problems: list[str]) -> None:
    async def matches() -> bool:
        return readiness() == problems

    await eventually(matches)


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("--appendonly", "no")


async def test_the_tracker_is_ready_once_subscribed_to_expiry_events(server: Server) -> None:
    async with monitored(server.url) as (_, reaper, readiness):
        assert readiness() == [NO_EXPIRY_EVENTS]
        await becomes(readiness, [])
        assert reaper.listening


async def test_an_unavailable_store_is_the_only_problem_reported(server: Server) -> None:
    """The tracker is ready again when the store is back."""
    async with monitored(server.url) as (store, _, readiness):
        await becomes(readiness, [])
        server.kill()
        await becomes(readiness, ["the store does not answer"])
        server.start()
        await becomes(readiness, [])
        assert not store.connection.unavailable


async def test_a_sweep_that_does_not_end_is_a_problem(server: Server) -> None:
    """Measured from the last complete round, or from the start."""
    ahead = 0.0
    async with monitored(server.url, timer=lambda: time.monotonic() + ahead) as (_, reaper, readiness):
        await becomes(readiness, [])

        async def swept() -> bool:
            return reaper.swept_at > 0

        await eventually(swept)
        assert 0 < reaper.sweep_seconds < 60
        ahead = BEHIND_INTERVALS * INTERVAL + 60
        assert readiness() == [SWEEP_BEHIND]
        await reaper.sweep_once(hurry=True)
        await becomes(readiness, [])


async def test_forbidden_expiry_events_are_no_problem(server: Server) -> None:
    """If the ACL forbids CONFIG or the channels, due lists and the sweep do the work."""
    with server.client() as client:
        for name, rules in (("no-config", ("-config", "allchannels")), ("no-channels", ("resetchannels",))):
            client.execute_command("ACL", "SETUSER", name, "on", ">p", "~*", "+@all", *rules)
        client.config_set("notify-keyspace-events", "")
    for name in ("no-config", "no-channels"):
        async with monitored(server.url.replace("unix://", f"unix://{name}:p@")) as (_, reaper, readiness):
            await becomes(readiness, [])

            async def settled(name: str = name, reaper: Reaper = reaper) -> bool:
                return not reaper.missing_events and reaper.listening == (name == "no-config")

            await eventually(settled)


async def test_a_forbidden_subscription_is_logged_once_and_starts_no_early_sweep(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "no-channels", "on", ">p", "~*", "+@all", "resetchannels")
    async with monitored(server.url.replace("unix://", "unix://no-channels:p@")) as (_, reaper, readiness):
        await becomes(readiness, [])

        await eventually(lambda: reaper._subscriptions_forbidden and reaper.swept_at > 0)
        assert not reaper._sweep_now.is_set()
    assert capsys.readouterr().out.count("forbids the subscription") == 1


async def test_a_shutdown_is_a_problem_and_a_missing_reaper_is_none(server: Server) -> None:
    async with monitored(server.url, work=False) as (store, _, _):
        assert find_problems(store.shards) == []
        assert find_problems(store.shards, stopping=True) == [STOPPING]


@dataclass(frozen=True)
class Sickness:
    """How to make a store refuse writes, and how to end that."""

    reason: str
    begin: Callable[[Redis, Server], object]
    end: Callable[[Redis, Server], object]


def fail_snapshots(client: Redis, server: Server) -> None:
    (server.directory / "dump.rdb").mkdir()
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


def write_snapshots(client: Redis, server: Server) -> None:
    (server.directory / "dump.rdb").rmdir()
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok")


SICKNESSES = (
    Sickness("disk full", fail_snapshots, write_snapshots),
    Sickness(
        "read-only",
        lambda client, _: client.replicaof("127.0.0.1", "1"),
        lambda client, _: client.replicaof("NO", "ONE"),
    ),
    Sickness(
        "no permission",
        lambda client, _: client.execute_command("ACL", "SETUSER", "tracker", "-@write"),  # type: ignore[no-untyped-call]
        lambda client, _: client.execute_command("ACL", "SETUSER", "tracker", "+@all"),  # type: ignore[no-untyped-call]
    ),
    Sickness(
        "out of memory",
        lambda client, _: client.config_set("maxmemory", "1mb"),
        lambda client, _: client.config_set("maxmemory", "0"),
    ),
)


@pytest.mark.parametrize("sickness", SICKNESSES, ids=[each.reason for each in SICKNESSES])
async def test_a_store_that_refuses_writes_is_a_problem_with_its_reason(
    start_server: StartServer, sickness: Sickness
) -> None:
    """Each heartbeat finds it out. The log has a line when it begins and one when it ends."""
    server = start_server("--appendonly", "no", "--save", "3600 1")

    async def beat(reaper: Reaper) -> None:
        with suppress(StoreUnavailable, RedisError):
            await reaper.send_heartbeat()

    with server.client() as client, capture_logs() as logs:
        client.execute_command("ACL", "SETUSER", "tracker", "on", ">p", "~*", "&*", "+@all")
        client.set("some", "value")
        url = server.url.replace("unix://", "unix://tracker:p@")
        async with monitored(url, work=False) as (store, reaper, readiness):
            await reaper.send_heartbeat()
            assert readiness() == [NO_EXPIRY_EVENTS]
            sickness.begin(client, server)
            for _ in range(2):
                await beat(reaper)
                assert f"store refuses writes: {sickness.reason}" in readiness()
            sickness.end(client, server)
            await beat(reaper)
            assert f"store refuses writes: {sickness.reason}" in readiness()  # it may be a short break
            await beat(reaper)
            assert readiness() == [NO_EXPIRY_EVENTS] and not store.connection.refusal
    told = [(each["event"], each.get("reason")) for each in logs if "writes" in each["event"]]
    assert told == [("the store refuses writes", sickness.reason), ("the store accepts writes again", None)]
