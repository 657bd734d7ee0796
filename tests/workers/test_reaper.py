"""The reaper with real expiries and their faults (rows T9 to T12). Timeouts end within milliseconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from loadtest.invariants import check_invariants
from loadtest.servers import Server
from tests.store.harness import ALICE, Store, due_deadline, info_hash, peer_id, running, timeout_key, update
from tests.waiting import eventually, in_background
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.loop import wait_for
from tracker.workers.reaper import Reaper

RULES = SwarmRules(accounts="required", peer_memory=3600, hnr_min_bytes=0, hnr_threshold=1000, grace=1)
REAP_INTERVAL = 1.0
SHORT = 0.05


class Rest:
    """The wait between two rounds of the sweep, on the real clock. Shows whether the sweep is waiting."""

    def __init__(self) -> None:
        self._wakes: asyncio.Event | None = None

    async def __call__(self, wakes: asyncio.Event, seconds: float) -> None:
        self._wakes = wakes
        try:
            await wait_for(wakes, seconds)
        finally:
            self._wakes = None

    @property
    def is_held(self) -> bool:
        return self._wakes is not None and not self._wakes.is_set()


@asynccontextmanager
async def tracker_on(
    url: str, prefix: str, *, reap: bool = True, interval: float = REAP_INTERVAL
) -> AsyncIterator[Store]:
    """A store with its batch loop, its watch, and a running reaper on the real clock."""
    async with running(Store(url, Keys(prefix), RULES, clock=time.time)) as store:  # type: ignore[arg-type]
        async with working(store, interval) if reap else AsyncExitStack():
            yield store


@asynccontextmanager
async def working(store: Store, interval: float = REAP_INTERVAL) -> AsyncIterator[Reaper]:
    reaper = Reaper(store, store.shards.main, lambda: interval, time.time, wait=Rest())
    store.connection.on_reconnect(reaper.on_reconnect)
    async with in_background(reaper.run(), store.connection.watch()):
        yield reaper


async def join(store: Store, peer: int, timeout: float = SHORT, torrent: int = 1) -> None:
    await store.announce(update(peer, "s", torrent=torrent, passkey=ALICE, timeout_seconds=timeout))


async def first_rounds(reaper: Reaper) -> None:
    """Waits until the sweeps after the start are over; later removals are the work of events and due lists."""
    rest = reaper.wait
    assert isinstance(rest, Rest)
    await eventually(lambda: reaper.listening and rest.is_held)


async def timed_out(store: Store, *peers: int) -> None:
    """Waits until the timeouts of these peers have ended. Reading them makes the store publish the events."""
    keys = [timeout_key(store.keys, 1, peer_id(peer)) for peer in peers]

    async def are_gone() -> bool:
        return not await store.redis.exists(*keys)

    await eventually(are_gone)


async def size(store: Store, torrent: int = 1) -> int:
    return int(await store.redis.scard(store.keys.swarm_peers(info_hash(torrent))))


async def gone(store: Store) -> bool:
    return await size(store) == 0


@pytest.fixture
async def users(any_server: Server, prefix: str) -> str:
    """A prefix in which user 7 exists."""
    async with running(Store(any_server.url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
    return prefix


async def test_a_timed_out_peer_is_removed(any_server: Server, users: str) -> None:
    """T9: removed from tpeers and the user's active set, active=0, counts lowered, at most 5 s after its timeout."""
    async with tracker_on(any_server.url, users) as store:
        await join(store, 1)
        await join(store, 2, timeout=60)
        await eventually(lambda: _is(size(store), 1), 5)
        assert (await store.peer(update(1)))["active"] == "0"
        assert await store.redis.sismember(store.keys.user_set(7, "active"), "1")
        assert (await store.torrent(info_hash(1)))["leechers"] == "1"
        assert await check_invariants(store.redis, store.keys) == 1
        await store.redis.expire(timeout_key(store.keys, 1, peer_id(2)), 0)
        await eventually(lambda: gone(store), 5)
        assert not await store.redis.sismember(store.keys.user_set(7, "active"), "1")


async def _is(number: Awaitable[int], expected: int) -> bool:
    return await number == expected


async def test_peers_that_time_out_without_a_tracker_are_removed_by_the_next(any_server: Server, users: str) -> None:
    """T10: a restart. No tracker was subscribed when the timeouts ended."""
    async with tracker_on(any_server.url, users, reap=False) as store:
        for peer in range(1, 40):
            await join(store, peer)
        await timed_out(store, *range(1, 40))
    async with tracker_on(any_server.url, users) as store:
        await eventually(lambda: gone(store), 5)
        assert await check_invariants(store.redis, store.keys) == 0


async def test_a_killed_subscriber_reconnects(any_server: Server, users: str) -> None:
    """T10: CLIENT KILL of every pubsub connection, then of every connection, while peers time out."""
    async with tracker_on(any_server.url, users, reap=False) as store, working(store) as reaper:
        await eventually(lambda: reaper.listening)
        for kind in ("pubsub", "normal"):
            for peer in range(1, 20):
                await join(store, peer, timeout=0.3)
            await _kill(any_server, kind)
            await eventually(lambda: gone(store), 6, ignored=(RedisConnectionError,))
            await eventually(lambda: reaper.listening and not store.connection.unavailable)
        assert await check_invariants(store.redis, store.keys) == 0


async def _kill(server: Server, kind: str) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


@pytest.mark.parametrize("flags", ["Kx", "Ex", "KEx", "", "gE", "AKE"])
async def test_notification_flags_are_added_to_those_set(
    start_server: Callable[..., Server], prefix: str, flags: str
) -> None:
    """T11: for any flags in redis.conf."""
    server = start_server("--notify-keyspace-events", flags, "--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
    async with tracker_on(server.url, prefix) as store:
        await join(store, 1)
        await eventually(lambda: gone(store), 5)
        now: str = (await store.redis.config_get("notify-keyspace-events"))["notify-keyspace-events"]
        assert set("Kx") <= set(now) or {"K", "A"} <= set(now)
        assert set(flags) <= set(now) | {"A"}


async def test_where_config_is_forbidden_due_lists_remove_peers(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """T10, T11: without events there is a warning; due lists and the sweep remove peers.

    C10: their delay is measured.
    """
    server = start_server("--notify-keyspace-events", "", "--appendonly", "no")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-config")
    url = server.url.replace("unix://", "unix://limited:pw@")
    async with running(Store(server.url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
    async with tracker_on(url, prefix, reap=False) as store, working(store, 3600) as reaper:
        await first_rounds(reaper)
        await join(store, 1)
        await eventually(lambda: gone(store))  # its due list is read 3 s later
        with server.client() as client:
            assert client.config_get("notify-keyspace-events")["notify-keyspace-events"] == ""
        await eventually(lambda: _counted(store, "reaps", 1))  # counted after the reply of the script
        lag = (await store.counters.distribution("reap_lag_seconds", 60))[1]
        assert lag is not None and lag.count == 1 and 0 < lag.mean < 10


async def _counted(store: Store, name: str, expected: int) -> bool:
    await store.counters.flush()
    return sum(number for _, number in await store.counters.series(name, 60)) == expected


async def test_expiry_events_of_another_database_are_received(any_server: Server, users: str) -> None:
    """T11."""
    url = any_server.url.replace("db=0", "db=5")
    prefix = users
    async with running(Store(url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
        async with working(store, 3600) as reaper:
            store.clock.now = time.time()
            await first_rounds(reaper)
            await join(store, 1)
            await store.redis.unlink(store.keys.due(due_deadline(int(store.clock.now) + 1, SHORT)))
            await timed_out(store, 1)  # only the event removes the peer
            await eventually(lambda: gone(store), 5)
        async for key in store.redis.scan_iter(f"{prefix}*"):
            await store.redis.unlink(key)


async def test_expiries_of_other_keys_change_nothing(any_server: Server, users: str) -> None:
    """T12: other prefixes, malformed names under our prefix, peers of unknown torrents."""
    async with tracker_on(any_server.url, users, reap=False) as store, working(store, 3600) as reaper:
        await first_rounds(reaper)
        await join(store, 1, timeout=60)
        pid = peer_id(1).hex()
        foreign = (
            f"foreign:{pid}",
            f"{users}ptimeout:1:{pid}:x",
            f"{users}ptimeout:x:{pid}",
            f"{users}ptimeout:",
            f"{users}ptimeout:99:{pid}",
            f"{users}ptimeout:1:zz",
        )
        for key in foreign:
            await store.redis.set(key, "1", px=20)

        async def are_gone() -> bool:
            return not await store.redis.exists(*foreign)

        await eventually(are_gone)
        await join(store, 2)
        await timed_out(store, 2)
        await eventually(lambda: _is(size(store), 1))  # events are ordered, so the others have been handled
        assert await check_invariants(store.redis, store.keys) == 1


async def test_two_trackers_remove_each_peer_once(any_server: Server, users: str) -> None:
    """T10."""
    async with tracker_on(any_server.url, users) as one, tracker_on(any_server.url, users) as two:
        for peer in range(1, 101):
            await join(one if peer % 2 else two, peer)
        await join(one, 200, timeout=60)
        await eventually(lambda: _is(size(one), 1), 5)
        reaped = [("1", peer_id(peer).hex()) for peer in range(1, 101)]
        assert await two.reaping.reap(reaped) == 0, "the slower one changes nothing"
        assert (await one.torrent(info_hash(1)))["leechers"] == "1"
        assert await check_invariants(one.redis, one.keys) == 1
        await two.counters.flush()
        await eventually(lambda: _counted(one, "reaps", 100), 5)
        assert await one.redis.get(one.keys.stat("reaped")) == b"100"


async def test_a_peer_that_announces_again_stays(any_server: Server, users: str) -> None:
    """T10: between expiry and removal; also when an event of its old timeout arrives late."""
    async with running(Store(any_server.url, Keys(users), RULES)) as store:
        store.clock.now = time.time()
        await join(store, 1)
        await timed_out(store, 1)
        await join(store, 1, timeout=60)
        deadline = due_deadline(int(store.clock.now) + 1, SHORT)
        assert await store.reaping.reap_due(deadline, 0, 64, 64) == (1, 0)
        assert await store.reaping.reap([("1", peer_id(1).hex())]) == 0
        assert await size(store) == 1


async def test_a_due_list_is_read_in_pieces(any_server: Server, users: str) -> None:
    """A call reads and removes at most the given number of entries. With the last entry the list is deleted."""
    async with running(Store(any_server.url, Keys(users), RULES)) as store:
        store.clock.now = time.time()
        for peer in range(1, 11):
            await join(store, peer, timeout=60 if peer == 3 else SHORT)
        await timed_out(store, 1, 2, *range(4, 11))
        deadline = due_deadline(int(store.clock.now) + 1, SHORT)
        assert await store.reaping.reap_due(deadline, 0, 2, 10) == (2, 2)
        assert await store.reaping.reap_due(deadline, 2, 100, 4) == (4, 4)
        assert await store.reaping.reap_due(deadline, 6, 2, 2) == (2, 2)
        assert await store.redis.exists(store.keys.due(deadline))
        assert await store.reaping.reap_due(deadline, 8, 100, 100) == (1, 1)
        assert not await store.redis.exists(store.keys.due(deadline))
        assert await store.reaping.reap_due(deadline, 9, 100, 100) == (0, 0)
        assert await size(store) == 1
        assert await check_invariants(store.redis, store.keys) == 1


@pytest.mark.long
async def test_20000_peers_that_time_out_together_are_removed(start_server: Callable[..., Server], prefix: str) -> None:
    """They are removed within 5 s; a peer that announces meanwhile stays."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), replace(RULES, accounts="off"))) as store:
        store.clock.now = time.time()
        for start in range(0, 20_000, 1000):  # more would be refused where the store shares its core
            await asyncio.gather(*(join(store, n, timeout=600, torrent=n % 100) for n in range(start, start + 1000)))
        with server.client() as client:
            pipe = client.pipeline(transaction=False)
            for key in client.scan_iter(f"{store.keys.timeouts()}*", 10_000):
                pipe.pexpire(key, 500)
            assert len(pipe.execute()) == 20_000
        async with working(store):
            for n in range(20_000, 20_050):
                await join(store, n, timeout=600, torrent=n % 100)
            # 5 s on an idle machine: see loadtest.bench.reaping.
            await eventually(lambda: _leechers(store, 50), 10)
        assert await check_invariants(store.redis, store.keys) == 50


async def _leechers(store: Store, expected: int) -> bool:
    return bool(await store.redis.get(store.keys.stat("leechers")) == str(expected).encode())


async def test_the_sweep_removes_peers_whose_events_and_due_lists_are_lost(any_server: Server, users: str) -> None:
    """Within a reap interval."""
    async with tracker_on(any_server.url, users, reap=False) as store:
        for peer in range(1, 300):
            await join(store, peer, timeout=60)
        async with working(store, interval=1.0) as reaper:
            await eventually(lambda: reaper.listening)
            await store.redis.delete(*(timeout_key(store.keys, 1, peer_id(peer)) for peer in range(1, 299)))
            await eventually(lambda: _is(size(store), 1), 5)
        assert await check_invariants(store.redis, store.keys) == 1


async def test_the_due_cursor_survives_a_restart(any_server: Server, users: str) -> None:
    async with tracker_on(any_server.url, users) as store:
        await eventually(lambda: _has_cursor(store), 5)
        cursor = await store.reaping.due_cursor()
        assert cursor is not None and abs(cursor - time.time()) < 10


async def _has_cursor(store: Store) -> bool:
    return (await store.reaping.due_cursor() or 0) > time.time() - 10


async def test_a_due_cursor_of_a_clock_that_was_ahead_is_set_back(any_server: Server, users: str) -> None:
    async with running(Store(any_server.url, Keys(users), RULES)) as store:
        await store.reaping.set_due_cursor(int(time.time()) + 7200)
    async with tracker_on(any_server.url, users, reap=False) as store, working(store, 3600) as reaper:
        await first_rounds(reaper)
        await join(store, 1)
        await eventually(lambda: gone(store), 5)
        await eventually(lambda: _cursor_is_past(store), 5)


async def _cursor_is_past(store: Store) -> bool:
    return (await store.reaping.due_cursor() or 0) <= time.time()


async def test_lists_due_during_an_outage_of_all_trackers_are_read(any_server: Server, users: str) -> None:
    """After any time: a live peer in such a list moves to a later one."""
    async with tracker_on(any_server.url, users, reap=False) as store:
        codec = store.swarms.of(info_hash(1))._codec
        codec._clock = lambda: time.time() - 7200
        await join(store, 1, timeout=600)
        (old,) = [key async for key in store.redis.scan_iter(f"{users}due:*")]
        await store.reaping.set_due_cursor(int(time.time()) - 7200)
        codec._clock = time.time
        async with working(store, interval=3600):
            await eventually(lambda: _absent(store, old), 10)
        (new,) = [key async for key in store.redis.scan_iter(f"{users}due:*")]
        assert int(new.rpartition(b":")[2]) > time.time()
        assert await check_invariants(store.redis, store.keys) == 1


async def _absent(store: Store, key: bytes) -> bool:
    return not await store.redis.exists(key)


async def test_after_an_outage_the_reaper_pauses_and_then_sweeps(any_server: Server, users: str) -> None:
    """After an outage of more than a minute, peers have one reap interval (3 s here) to announce."""
    rules = replace(RULES, grace=3)
    async with tracker_on(any_server.url, users, reap=False) as store:
        await join(store, 1)
        await join(store, 2)
        unavailable = int(time.time()) - 300
        await store.redis.hset(store.keys.peer(1, peer_id(1)), "last_announce", unavailable)
        await store.redis.hset(store.keys.peer(1, peer_id(2)), "last_announce", unavailable)
        await store.redis.set(store.keys.heartbeat(), unavailable)
        await timed_out(store, 1, 2)
    again = Store(any_server.url, Keys(users), rules, clock=time.time)  # type: ignore[arg-type]
    async with running(again) as store, working(store, 1.0) as reaper:
        await first_rounds(reaper)
        assert await size(store) == 2
        await join(store, 2, timeout=60)
        await eventually(lambda: _is(size(store), 1), 15)
        assert not await store.redis.sismember(store.keys.user_set(7, "hnr"), "1")
        assert await check_invariants(store.redis, store.keys) == 1


async def counted(store: Store) -> dict[str, int]:
    """The counters of removed peers, by cause and in total."""
    await store.counters.flush()
    series = {name: await store.counters.series(name, 60) for name in await store.counters.names("reaps*")}
    return {name: sum(count for _, count in slices) for name, slices in series.items()}


async def test_removals_are_counted_by_cause(any_server: Server, users: str) -> None:
    async with tracker_on(any_server.url, users, reap=False) as store, working(store) as reaper:
        for peer in range(1, 20):
            await join(store, peer, timeout=0.3)
        await eventually(lambda: gone(store), 6)

        async def all_counted() -> bool:
            return (await counted(store)).get("reaps") == 19

        await eventually(all_counted, 5)
        causes = await counted(store)
        assert sum(count for name, count in causes.items() if name != "reaps") == 19
        assert set(causes) <= {"reaps", "reaps.event", "reaps.due", "reaps.sweep"}
        assert reaper.due_behind_seconds < 60


async def test_removals_by_the_sweep_are_counted_as_such(any_server: Server, users: str) -> None:
    async with tracker_on(any_server.url, users, reap=False) as store:
        await join(store, 1)
        await store.redis.expire(timeout_key(store.keys, 1, peer_id(1)), 0)
        reaper = Reaper(store, store.shards.main, lambda: 60, store.clock)
        assert (reaper.swept_at, reaper.sweep_behind, reaper.due_behind_seconds) == (0, False, 0)
        await store.redis.delete(timeout_key(store.keys, 1, peer_id(1)))
        await reaper.sweep_once(hurry=True)
        assert await gone(store)
        assert await counted(store) == {"reaps": 1, "reaps.sweep": 1}
        assert reaper.swept_at > 0
