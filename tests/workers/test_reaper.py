"""The reaper against real expiries and its faults (rows T9 to T12). Timeouts run out in milliseconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.servers import Server
from tests.store.harness import ALICE, Store, info_hash, peer_id, running, update
from tests.store.invariants import check_invariants
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules, due_deadline
from tracker.workers.reaper import Reaper

RULES = SwarmRules(private=True, peer_memory=3600, hnr_min_bytes=0, hnr_threshold=1000, grace=1)
REAP_INTERVAL = 1.0
SHORT = 0.05


@asynccontextmanager
async def tracker_on(
    url: str, prefix: str, *, reap: bool = True, interval: float = REAP_INTERVAL
) -> AsyncIterator[Store]:
    """A store with its batch loop, its watch, and a reaper at work on the real clock."""
    async with running(Store(url, Keys(prefix), RULES, clock=time.time)) as store:  # type: ignore[arg-type]
        async with working(store, interval) if reap else AsyncExitStack():
            yield store


@asynccontextmanager
async def working(store: Store, interval: float = REAP_INTERVAL) -> AsyncIterator[Reaper]:
    reaper = Reaper(store.reaping, store.connection, store.keys, store.counters, interval, time.time)
    store.connection.on_return(reaper.note_return)
    tasks = [asyncio.Task(reaper.run()), asyncio.Task(store.connection.watch())]
    try:
        yield reaper
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def join(store: Store, peer: int, timeout: float = SHORT, torrent: int = 1) -> None:
    await store.announce(update(peer, "s", torrent=torrent, passkey=ALICE, timeout_seconds=timeout))


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> float:
    """How long it took; fails after ``seconds``. A line that a test has cut says nothing yet."""
    started = time.monotonic()
    while True:
        with suppress(RedisConnectionError):
            if await condition():
                break
        assert time.monotonic() - started < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


async def size(store: Store, torrent: int = 1) -> int:
    return int(await store.redis.scard(store.keys.swarm_peers(info_hash(torrent))))


async def gone(store: Store) -> bool:
    return await size(store) == 0


@pytest.fixture
async def users(any_server: Server, prefix: str) -> str:
    """A prefix in which user 7 exists; the name of the prefix."""
    async with running(Store(any_server.url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
    return prefix


async def test_a_silent_peer_is_reaped(any_server: Server, users: str) -> None:
    """T9: out of tpeers and the user's active set, active=0, counts lowered, within its timeout + 5 s."""
    async with tracker_on(any_server.url, users) as store:
        await join(store, 1)
        await join(store, 2, timeout=60)
        await until(lambda: _is(size(store), 1), 5)
        assert (await store.peer(update(1)))["active"] == "0"
        assert await store.redis.sismember(store.keys.user_set(7, "active"), "1")
        assert (await store.torrent(info_hash(1)))["leechers"] == "1"
        assert await check_invariants(store.redis, store.keys) == 1
        await store.redis.expire(store.keys.timeout(1, peer_id(2)), 0)
        await until(lambda: gone(store), 5)
        assert not await store.redis.sismember(store.keys.user_set(7, "active"), "1")


async def _is(number: Awaitable[int], expected: int) -> bool:
    return await number == expected


async def test_expiry_after_the_tracker_died_is_reaped_by_the_next(any_server: Server, users: str) -> None:
    """T10: restart. Nobody listened when the timeouts ran out."""
    async with tracker_on(any_server.url, users, reap=False) as store:
        for peer in range(1, 40):
            await join(store, peer)
        await asyncio.sleep(2 * SHORT)
    async with tracker_on(any_server.url, users) as store:
        await until(lambda: gone(store), 5)
        assert await check_invariants(store.redis, store.keys) == 0


async def test_a_killed_subscriber_comes_back(any_server: Server, users: str) -> None:
    """T10: CLIENT KILL of every pubsub connection, and of every connection, while peers expire."""
    async with tracker_on(any_server.url, users, reap=False) as store, working(store) as reaper:
        await until(lambda: _done(reaper.listening), 5)
        for kind in ("pubsub", "normal"):
            for peer in range(1, 20):
                await join(store, peer, timeout=0.3)
            await _kill(any_server, kind)
            await until(lambda: gone(store), 6)
            await until(lambda: _done(reaper.listening and not store.connection.away), 5)
        assert await check_invariants(store.redis, store.keys) == 0


async def _done(value: bool) -> bool:
    return value


async def _kill(server: Server, kind: str) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


@pytest.mark.parametrize("flags", ["Kx", "Ex", "KEx", "", "gE", "AKE"])
async def test_flags_are_added_and_others_survive(
    start_server: Callable[..., Server], prefix: str, flags: str
) -> None:
    """T11: whatever is in redis.conf."""
    server = start_server("--notify-keyspace-events", flags, "--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
    async with tracker_on(server.url, prefix) as store:
        await join(store, 1)
        await until(lambda: gone(store), 5)
        now: str = (await store.redis.config_get("notify-keyspace-events"))["notify-keyspace-events"]
        assert set("Kx") <= set(now) or {"K", "A"} <= set(now)
        assert set(flags) <= set(now) | {"A"}


async def test_where_config_is_forbidden_due_lists_reap(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """T10, T11: events off. A loud warning, and due lists and the sweep alone. C10: how late they are is measured."""
    server = start_server("--notify-keyspace-events", "", "--appendonly", "no")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-config")
    url = server.url.replace("unix://", "unix://limited:pw@")
    async with running(Store(server.url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
    async with tracker_on(url, prefix, interval=3600) as store:
        await asyncio.sleep(0.3)  # the first sweep is over: what follows is the due lists' work
        await join(store, 1)
        await until(lambda: gone(store), 10)  # its list is due 3 s after it, on a machine that has the time
        with server.client() as client:
            assert client.config_get("notify-keyspace-events")["notify-keyspace-events"] == ""
        await until(lambda: _counted(store, "reaps", 1), 5)  # the reaper counts once the script has answered
        lag = (await store.counters.distribution("reap_lag_seconds", 60))[1]
        assert lag is not None and lag.count == 1 and 0 < lag.mean < 10


async def _counted(store: Store, name: str, expected: int) -> bool:
    await store.counters.flush()
    return sum(number for _, number in await store.counters.series(name, 60)) == expected


async def test_another_database_works(any_server: Server, users: str) -> None:
    """T11."""
    url = any_server.url.replace("db=0", "db=5")
    prefix = users
    async with running(Store(url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
        async with working(store, 3600) as reaper:
            store.clock.now = time.time()
            await until(lambda: _done(reaper.listening), 5)
            await asyncio.sleep(0.3)
            await join(store, 1)
            await store.redis.unlink(store.keys.due(due_deadline(int(store.clock.now) + 1, SHORT)))
            await asyncio.sleep(2 * SHORT)
            await store.redis.exists(
                store.keys.timeout(1, peer_id(1))
            )  # found expired: the event alone reaps
            await until(lambda: gone(store), 5)
        async for key in store.redis.scan_iter(f"{prefix}*"):
            await store.redis.unlink(key)


async def test_foreign_expiries_touch_nobody(any_server: Server, users: str) -> None:
    """T12: keys of others, malformed names below our own prefix, peers of unknown torrents."""
    async with tracker_on(any_server.url, users) as store:
        await join(store, 1, timeout=60)
        pid = peer_id(1).hex()
        for key in (
            f"foreign:{pid}",
            f"{users}ptimeout:1:{pid}:x",
            f"{users}ptimeout:x:{pid}",
            f"{users}ptimeout:",
            f"{users}ptimeout:99:{pid}",
            f"{users}ptimeout:1:zz",
        ):
            await store.redis.set(key, "1", px=20)
        await asyncio.sleep(0.1)
        for key in (f"foreign:{pid}", f"{users}ptimeout:99:{pid}"):
            await store.redis.exists(key)
        await asyncio.sleep(0.3)
        assert await check_invariants(store.redis, store.keys) == 1


async def test_two_trackers_reap_once(any_server: Server, users: str) -> None:
    """T10."""
    async with tracker_on(any_server.url, users) as one, tracker_on(any_server.url, users) as two:
        for peer in range(1, 101):
            await join(one if peer % 2 else two, peer)
        await join(one, 200, timeout=60)
        await until(lambda: _is(size(one), 1), 5)
        await asyncio.sleep(0.2)  # what the slower one counts
        assert (await one.torrent(info_hash(1)))["leechers"] == "1"
        assert await check_invariants(one.redis, one.keys) == 1
        await two.counters.flush()
        await until(lambda: _counted(one, "reaps", 100), 5)
        assert await one.redis.get(one.keys.stat("reaped")) == b"100"


async def test_a_peer_that_came_back_stays(any_server: Server, users: str) -> None:
    """T10: between expiry and reaping; also when an event of its old timeout arrives late."""
    async with running(Store(any_server.url, Keys(users), RULES)) as store:
        store.clock.now = time.time()
        await join(store, 1)
        await asyncio.sleep(2 * SHORT)
        await join(store, 1, timeout=60)
        deadline = due_deadline(int(store.clock.now) + 1, SHORT)
        assert await store.reaping.reap_due(deadline, 0, 64, 64) == (1, 0)
        assert await store.reaping.reap([("1", peer_id(1).hex())]) == 0
        assert await size(store) == 1


async def test_a_due_list_is_worked_through_in_pieces(any_server: Server, users: str) -> None:
    """As many are looked at, and as many removed, in one call as its caller allows; the list goes with its last entry."""
    async with running(Store(any_server.url, Keys(users), RULES)) as store:
        store.clock.now = time.time()
        for peer in range(1, 11):
            await join(store, peer, timeout=60 if peer == 3 else SHORT)
        await asyncio.sleep(2 * SHORT)
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


async def test_20000_at_once(start_server: Callable[..., Server], prefix: str) -> None:
    """20,000 peers whose timeouts end together are gone within 5 s of it; who announces meanwhile stays."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), replace(RULES, private=False))) as store:
        store.clock.now = time.time()
        for start in range(0, 20_000, 1000):  # more would be refused where the store has to share its core
            await asyncio.gather(
                *(join(store, n, timeout=600, torrent=n % 100) for n in range(start, start + 1000))
            )
        with server.client() as client:
            pipe = client.pipeline(transaction=False)
            for key in client.scan_iter(f"{store.keys.timeouts()}*", 10_000):
                pipe.pexpire(key, 500)
            assert len(pipe.execute()) == 20_000
        async with working(store):
            for n in range(20_000, 20_050):
                await join(store, n, timeout=600, torrent=n % 100)
            # 5 s where nothing else runs: bench.reap_drill measures it.
            await until(lambda: _leechers(store, 50), 10)
        assert await check_invariants(store.redis, store.keys) == 50


async def _leechers(store: Store, expected: int) -> bool:
    return bool(await store.redis.get(store.keys.stat("leechers")) == str(expected).encode())


async def test_lost_events_and_lost_due_lists_are_healed_by_the_sweep(any_server: Server, users: str) -> None:
    """The sweep alone is enough: within a reap interval."""
    async with tracker_on(any_server.url, users, reap=False) as store:
        for peer in range(1, 300):
            await join(store, peer, timeout=60)
        async with working(store, interval=1.0) as reaper:
            await until(lambda: _done(reaper.listening), 5)
            await store.redis.delete(*(store.keys.timeout(1, peer_id(peer)) for peer in range(1, 299)))
            await until(lambda: _is(size(store), 1), 5)
        assert await check_invariants(store.redis, store.keys) == 1


async def test_the_due_cursor_survives_a_restart(any_server: Server, users: str) -> None:
    async with tracker_on(any_server.url, users) as store:
        await until(lambda: _has_cursor(store), 5)
        cursor = await store.reaping.due_cursor()
        assert cursor is not None and abs(cursor - time.time()) < 10


async def _has_cursor(store: Store) -> bool:
    return (await store.reaping.due_cursor() or 0) > time.time() - 10


async def test_a_due_cursor_of_a_clock_that_was_ahead_is_set_back(any_server: Server, users: str) -> None:
    async with running(Store(any_server.url, Keys(users), RULES)) as store:
        await store.reaping.set_due_cursor(int(time.time()) + 7200)
    async with tracker_on(any_server.url, users, interval=3600) as store:
        await asyncio.sleep(0.3)
        await join(store, 1)
        await until(lambda: gone(store), 5)
        await until(lambda: _cursor_is_past(store), 5)


async def _cursor_is_past(store: Store) -> bool:
    return (await store.reaping.due_cursor() or 0) <= time.time()


async def test_lists_that_came_due_while_no_tracker_was_here_are_worked_through(
    any_server: Server, users: str
) -> None:
    """However long that was: whoever stands in one and lives belongs in a later one."""
    async with tracker_on(any_server.url, users, reap=False) as store:
        store.swarms._clock = lambda: time.time() - 7200
        await join(store, 1, timeout=600)
        (old,) = [key async for key in store.redis.scan_iter(f"{users}due:*")]
        await store.reaping.set_due_cursor(int(time.time()) - 7200)
        store.swarms._clock = time.time
        async with working(store, interval=3600):
            await until(lambda: _absent(store, old), 10)
        (new,) = [key async for key in store.redis.scan_iter(f"{users}due:*")]
        assert int(new.rpartition(b":")[2]) > time.time()
        assert await check_invariants(store.redis, store.keys) == 1


async def _absent(store: Store, key: bytes) -> bool:
    return not await store.redis.exists(key)


async def test_after_an_outage_the_reaper_waits_and_then_sweeps(any_server: Server, users: str) -> None:
    """The tracker was away for longer than a minute: its peers get one reap interval (3 s here) to come back."""
    rules = replace(RULES, grace=3)
    async with tracker_on(any_server.url, users, reap=False) as store:
        await join(store, 1)
        await join(store, 2)
        away = int(time.time()) - 300
        await store.redis.hset(store.keys.peer(1, peer_id(1)), "last_announce", away)
        await store.redis.hset(store.keys.peer(1, peer_id(2)), "last_announce", away)
        await store.redis.set(store.keys.heartbeat(), away)
        await asyncio.sleep(2 * SHORT)
    again = Store(any_server.url, Keys(users), rules, clock=time.time)  # type: ignore[arg-type]
    async with running(again) as store, working(store, 1.0):
        await asyncio.sleep(0.3)
        assert await size(store) == 2
        await join(store, 2, timeout=60)
        await until(lambda: _is(size(store), 1), 15)
        assert not await store.redis.sismember(store.keys.user_set(7, "hnr"), "1")
        assert await check_invariants(store.redis, store.keys) == 1


async def counted(store: Store) -> dict[str, int]:
    """What was counted of reaps, by cause and in all."""
    await store.counters.flush()
    series = {name: await store.counters.series(name, 60) for name in await store.counters.names("reaps*")}
    return {name: sum(count for _, count in slices) for name, slices in series.items()}


async def test_each_reap_counts_by_what_found_the_peer(any_server: Server, users: str) -> None:
    async with tracker_on(any_server.url, users, reap=False) as store, working(store) as reaper:
        for peer in range(1, 20):
            await join(store, peer, timeout=0.3)
        await until(lambda: gone(store), 6)

        async def all_counted() -> bool:
            return (await counted(store)).get("reaps") == 19

        await until(all_counted, 5)
        causes = await counted(store)
        assert sum(count for name, count in causes.items() if name != "reaps") == 19
        assert set(causes) <= {"reaps", "reaps.event", "reaps.due", "reaps.sweep"}
        assert reaper.due_behind_seconds < 60


async def test_what_the_sweep_finds_counts_as_its_own(any_server: Server, users: str) -> None:
    async with tracker_on(any_server.url, users, reap=False) as store:
        await join(store, 1)
        await store.redis.expire(store.keys.timeout(1, peer_id(1)), 0)
        reaper = Reaper(store.reaping, store.connection, store.keys, store.counters, 60, store.clock)
        assert (reaper.swept_at, reaper.sweep_behind, reaper.due_behind_seconds) == (0, False, 0)
        await store.redis.delete(store.keys.timeout(1, peer_id(1)))
        await reaper.sweep_once(0.0)
        assert await gone(store)
        assert await counted(store) == {"reaps": 1, "reaps.sweep": 1}
        assert reaper.swept_at > 0
