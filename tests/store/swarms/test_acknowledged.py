"""A server that has lost announces which the store had acknowledged removes no peer before it can announce again, and
makes no hit-and-run. One that has them all goes on as before."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loadtest.sentinels import Failover, failover
from loadtest.servers import Server
from tests.store.client.proxy import Proxy
from tests.store.harness import ALICE, START, Clock, Store, running, update
from tests.waiting import eventually, in_background, until
from tracker.errors import StoreUnavailable
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

GRACE = 1860
KEYS = Keys("t:")
RULES = SwarmRules(
    accounts="required", peer_memory=3600, hnr_min_bytes=100, hnr_threshold=86_400, max_gap=7200, grace=GRACE
)
StartServer = Callable[..., Server]


def alice(event: str = "u", timeout_seconds: float = 3600, **changes: Any) -> Any:
    return update(1, event, passkey=ALICE, timeout_seconds=timeout_seconds, **changes)


def other(event: str = "u") -> Any:
    return update(2, event, torrent=2, passkey=ALICE)


@asynccontextmanager
async def tracker(url: str, now: float = START) -> AsyncIterator[Store]:
    clock = Clock(now)
    store = Store(url, KEYS, RULES, clock, timer=clock)
    async with running(store), in_background(store.connection.watch()):
        yield store


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[tuple[Store, Proxy]]:
    """A tracker in private mode, whose user downloads a torrent. The peer's timeout is short."""
    async with Proxy(server) as proxy, tracker(proxy.url) as store:
        await download(store)
        yield store, proxy


async def download(store: Store) -> None:
    await store.users.add("7", ALICE)
    await store.reaping.heartbeat()
    await announced(store, alice("s", 100), other("s"))
    await store.pass_time(5)


async def announced(store: Store, *updates: Any) -> None:
    """They reach whichever server the tracker finds."""

    async def is_answered() -> bool:
        await store.announce(left[0])
        return True

    left = list(updates)
    while left:
        await eventually(is_answered, ignored=(StoreUnavailable,))
        left.pop(0)


async def interruption(store: Store) -> bytes | None:
    return bytes(found) if (found := await store.connection.command("GET", KEYS.gap())) else None


async def interrupted_by_heartbeat(store: Store) -> bool:
    return await store.reaping.heartbeat() > 0


async def check_pause(store: Store) -> None:
    """No peer is removed until it has had time to announce; then a silent one is, without a hit-and-run."""

    async def is_noticed() -> bool:
        return await interruption(store) is not None

    await eventually(is_noticed, ignored=(StoreUnavailable,))
    assert await store.silence(alice()) == 0
    for _ in range(GRACE // 30 + 1):
        await store.pass_time(30)
    assert await store.silence(alice()) == 1
    assert await store.users.hit_and_runs() == []


async def check_no_pause(store: Store) -> None:
    await store.reaping.heartbeat()
    assert await interruption(store) is None
    assert await store.silence(alice()) == 1


@pytest.fixture
def pair() -> Iterator[Failover]:
    """A primary and its replica."""
    with failover(sentinels=0) as pair:
        replica = pair.servers[1]
        until(lambda: b"master_link_status:up" in info(replica))
        yield pair


def info(server: Server) -> bytes:
    with server.client() as client:
        client.response_callbacks.clear()
        return bytes(client.execute_command("INFO", "replication"))


def offset(server: Server) -> int:
    with server.client() as client:
        return int(client.info("replication")["master_repl_offset"])


def promote(replica: Server) -> None:
    with replica.client() as client:
        client.replicaof("NO", "ONE")


@pytest.mark.parametrize("lost", ["renewal", "stop", "join"])
async def test_a_replica_without_the_last_announces_removes_no_peer(pair: Failover, lost: str) -> None:
    """The primary goes on, as when it is cut off from its replica."""
    primary, replica = pair.servers
    async with serving(primary) as (store, proxy):
        until(lambda: offset(replica) == offset(primary))
        promote(replica)
        of_lost = {"renewal": alice(downloaded=5000), "stop": other("x"), "join": update(3, "s", passkey=ALICE)}
        await announced(store, of_lost[lost])
        proxy.lead_to(replica)
        await announced(store, other())
        await check_pause(store)


async def test_an_announce_that_was_lost_is_missed_though_its_peer_announced_a_second_before(pair: Failover) -> None:
    """As a client does that announces over IPv4 and IPv6."""
    primary, replica = pair.servers
    async with serving(primary) as (store, proxy):
        await announced(store, alice())
        until(lambda: offset(replica) == offset(primary))
        promote(replica)
        store.clock.now += 1
        await announced(store, alice())
        proxy.lead_to(replica)
        await announced(store, other())
        await check_pause(store)


@pytest.mark.slow
async def test_the_same_holds_for_a_failover_by_sentinels() -> None:
    """The replica cannot reach the master, which the tracker uses until it is killed."""
    with failover(down_milliseconds=1000) as group:
        master, replica = group.servers
        async with tracker(group.url) as store:
            await download(store)
            until(lambda: offset(replica) == offset(master))
            with master.client() as client:
                client.config_set("requirepass", "another")
                client.client_kill_filter(_type="replica")
            await announced(store, alice(downloaded=5000))
            master.kill()
            await announced(store, other())
            assert store.connection.master == f"127.0.0.1:{replica.port}"
            await check_pause(store)


async def test_announces_are_looked_for_where_they_are_made_first(pair: Failover) -> None:
    """The first announces that reach the new server do not count for what the old one acknowledged."""
    primary, replica = pair.servers
    async with serving(primary) as (store, proxy):
        until(lambda: offset(replica) == offset(primary))
        promote(replica)
        await announced(store, alice())
        proxy.lead_to(replica)
        await announced(store, *[other() for _ in range(20)])
        await check_pause(store)


async def test_a_replica_that_has_all_goes_on(pair: Failover) -> None:
    primary, replica = pair.servers
    async with serving(primary) as (store, proxy):
        await announced(store, alice(downloaded=5000), other("x"), update(3, "s", passkey=ALICE))
        until(lambda: offset(replica) == offset(primary))
        promote(replica)
        proxy.lead_to(replica)
        await announced(store, other("s"))
        await check_no_pause(store)


@pytest.mark.slow
@pytest.mark.long
async def test_a_tracker_that_knows_nothing_waits_after_an_unplanned_failover(pair: Failover) -> None:
    """The replica has run since before the last heartbeat, so it was not restarted meanwhile."""
    primary, replica = pair.servers
    async with serving(primary):
        until(lambda: offset(replica) == offset(primary))
    with replica.client() as client:
        until(lambda: int(client.info("server")["uptime_in_seconds"]) > 12)
    promote(replica)
    async with Proxy(replica) as proxy, tracker(proxy.url, START + 5 + 11) as store:
        await store.reaping.heartbeat()
        assert await interruption(store) == b"%d %d 11 0" % (START + 5, START + 16)
        await check_pause(store)


async def test_a_tracker_that_knows_nothing_goes_on_after_a_planned_failover(pair: Failover) -> None:
    primary, replica = pair.servers
    async with serving(primary):
        until(lambda: offset(replica) == offset(primary))
    promote(replica)
    async with Proxy(replica) as proxy, tracker(proxy.url, START + 5 + 8) as store:
        await check_no_pause(store)


@pytest.mark.parametrize("persistence", ["append-only file", "dump"])
async def test_a_server_that_is_restarted_goes_on(start_server: StartServer, persistence: str) -> None:
    file = ("--appendonly", "yes") if persistence == "append-only file" else ("--appendonly", "no", "--save", "9 9")
    server = start_server(*file)
    async with serving(server) as (store, _):
        await announced(store, alice())
        store.clock.now += 30
        server.stop()
        server.start()
        await announced(store, other())
        await check_no_pause(store)


async def test_a_peer_that_stopped_by_way_of_another_tracker_was_not_lost(start_server: StartServer) -> None:
    server = start_server("--appendonly", "yes")
    async with serving(server) as (store, _), tracker(server.url, store.clock.now) as another:
        await announced(store, update(3, "s", passkey=ALICE))
        await announced(another, update(3, "x", passkey=ALICE))
        server.stop()
        server.start()
        await announced(store, other())
        await check_no_pause(store)


async def test_a_server_that_lost_the_end_of_its_file_removes_no_peer(start_server: StartServer) -> None:
    server = start_server("--appendonly", "yes")
    async with serving(server) as (store, _):
        (file,) = (server.directory / "appendonlydir").glob("*.incr.aof")
        size = file.stat().st_size
        await announced(store, alice(downloaded=5000))
        server.kill()
        os.truncate(file, size)
        server.start()
        await announced(store, other())
        await check_pause(store)


async def test_a_copy_that_was_restored_removes_no_peer(start_server: StartServer) -> None:
    """Nothing was announced since, but the copy is old. It was restored faster than an outage takes."""
    server = start_server("--appendonly", "no", "--save", "")
    async with serving(server) as (store, _):
        await store.connection.command("SAVE")
        shutil.copy(server.directory / "dump.rdb", copy := server.directory / "copy.rdb")
        for _ in range(5):
            await store.pass_time(30)
        server.kill()
        shutil.move(copy, server.directory / "dump.rdb")
        server.start()
        await eventually(lambda: interrupted_by_heartbeat(store), ignored=(StoreUnavailable,))
        assert await interruption(store) == b"%d %d 150 0" % (START + 5, START + 155)
        await check_pause(store)
