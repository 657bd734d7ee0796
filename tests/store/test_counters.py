"""The counts of requests: exact, whatever the store does meanwhile (row T20)."""

import asyncio

import pytest
import structlog

from tests.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import Store, update
from tests.store.proxy import Proxy
from tracker.store.connection import Connection, connect
from tracker.store.counters import Counters
from tracker.store.scripts import Scripts


async def test_counts_are_written_as_counted(store: Store) -> None:
    store.counters.count("announces", by=3)
    store.counters.count("requests", by=4)
    store.counters.count("announces")
    store.counters.count("failures.unknown torrent")
    await store.counters.flush()
    assert await figures(store) == {"announces": 4, "requests": 4}
    assert await store.redis.hgetall(store.keys.failures()) == {b"unknown torrent": b"1"}
    await store.counters.flush()
    assert await figures(store) == {"announces": 4, "requests": 4}


async def test_nothing_is_lost_or_counted_twice_under_concurrency(
    store: Store, make_store: MakeStore
) -> None:
    """T20: two processes, counts going on while they are written."""
    other = await make_store()

    async def count(counters: Counters) -> None:
        for _ in range(200):
            counters.count("requests")
            counters.count("failures.denied")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for counters in (store.counters, other.counters):
            for _ in range(5):
                tasks.create_task(count(counters))
            for _ in range(20):
                tasks.create_task(counters.flush())
    await store.counters.flush()
    await other.counters.flush()
    assert await figures(store) == {"requests": 2000}
    assert await store.redis.hget(store.keys.failures(), "denied") == b"2000"


async def test_counts_are_kept_while_the_store_is_away(store: Store) -> None:
    store.counters.count("requests", by=5)
    store.connection._lost(OSError())
    await store.counters.flush()
    store.counters.count("requests", by=2)
    await store.counters.flush()
    assert await store.connection._returned()
    await store.counters.flush()
    assert await figures(store) == {"requests": 7}


async def test_a_lost_answer_does_not_count_twice(any_server: Server, store: Store) -> None:
    """The store had added the batch, but nobody heard it say so."""
    async with Proxy(any_server) as proxy:
        connection = Connection(connect(proxy.url, connect_timeout=1), timeout=1)
        counters = Counters(connection, Scripts(connection, store.keys.prefix), store.keys, store.clock)
        counters.count("requests", by=5)
        await counters.flush()
        counters.count("requests", by=5)
        proxy.swallow_answers()
        await counters.flush()
        assert connection.away
        assert await figures(store) == {"requests": 10}
        counters.count("requests", by=5)
        assert await connection._returned()
        await counters.flush()
        assert await figures(store) == {"requests": 15}
        await connection.close()


async def test_a_cancelled_write_is_repeated(store: Store) -> None:
    """On a graceful stop nothing is lost, wherever the loop was."""
    for turns in range(12):
        store.counters.count("requests")
        writer = asyncio.Task(store.counters.flush())
        for _ in range(turns):
            await asyncio.sleep(0)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
    await store.counters.flush()
    assert await figures(store) == {"requests": 12}


async def test_running_writes_by_itself(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.store.counters.FLUSH_SECONDS", 0.001)
    loop = asyncio.Task(store.counters.run())
    store.counters.count("scrapes", by=9)
    async with asyncio.timeout(5):
        while await figures(store) != {"scrapes": 9}:
            await asyncio.sleep(0.001)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


async def test_a_key_of_the_wrong_type_does_not_stop_the_others(store: Store) -> None:
    await store.redis.sadd(store.keys.stat("requests"), "somebody was here")
    store.counters.count("requests")
    store.counters.count("announces")
    store.counters.count("failures.denied")
    with structlog.testing.capture_logs() as logs:
        await store.counters.flush()
    assert [(line["log_level"], line["keys"]) for line in logs] == [("error", 1)]
    assert await store.redis.get(store.keys.stat("announces")) == b"1"
    assert await store.redis.hget(store.keys.failures(), "denied") == b"1"


async def test_all_figures_are_read(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s", bytes_left=0))
    store.counters.count("repairs", by=2)
    await store.counters.flush()
    assert await store.counters.totals() == {
        "seeders": 1,
        "leechers": 1,
        "announces": 0,
        "scrapes": 0,
        "requests": 0,
        "reaped": 0,
        "repairs": 2,
        "forgotten": 0,
        "credit_cut": 0,
        "tally_dropped": 0,
        "outbox_dropped": 0,
    }


async def figures(store: Store) -> dict[str, int]:
    return {name: value for name, value in (await store.counters.totals()).items() if value}
