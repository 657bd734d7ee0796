"""Counters and measurements: exact, whatever happens to the store meanwhile (rows T20, C1, C7 to C10)."""

import asyncio
import math
import statistics
import sys
import time
from collections import Counter

import pytest
import structlog

from loadtest.servers import Server
from tests.store.client.proxy import Proxy
from tests.store.conftest import MakeStore
from tests.store.harness import START, Store, one_shard
from tests.waiting import eventually, in_background
from tracker.runtime.telemetry import Telemetry
from tracker.store.client.connection import Connection, connect
from tracker.store.stats.counters import FIGURES, Counters
from tracker.store.stats.slices import PRECISIONS, Distribution, oldest_retained, start_of


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


async def test_nothing_is_lost_or_counted_twice_under_concurrency(store: Store, make_store: MakeStore) -> None:
    """T20: two processes count while counts are written."""
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


async def test_counts_are_kept_while_the_store_is_unavailable(store: Store) -> None:
    store.counters.count("requests", by=5)
    store.connection._lost(OSError())
    await store.counters.flush()
    store.counters.count("requests", by=2)
    await store.counters.flush()
    assert await store.connection.reconnect()
    await store.counters.flush()
    assert await figures(store) == {"requests": 7}


async def test_a_lost_reply_does_not_count_twice(any_server: Server, store: Store) -> None:
    """The store had added the batch, but its reply never arrived."""
    async with Proxy(any_server) as proxy:
        connection = Connection(connect(proxy.url, connect_timeout=1, timeout=1))
        counters = Counters(one_shard(connection, store.keys.prefix), store.clock)
        counters.count("requests", by=5)
        await counters.flush()
        counters.count("requests", by=5)
        proxy.swallow_answers()
        await counters.flush()
        assert connection.unavailable
        assert await figures(store) == {"requests": 10}
        counters.count("requests", by=5)
        assert await connection.reconnect()
        await counters.flush()
        assert await figures(store) == {"requests": 15}
        await connection.close()


async def test_the_callback_receives_each_count_once(store: Store) -> None:
    """Whatever seconds pass, whatever is flushed, and whatever happens to the store."""
    telemetry = Telemetry()
    tapped = Counters(store.shards, store.clock, tap=telemetry.add_second)
    for second in (0, 1, 0, 5, 1):
        tapped.count("requests", "announces", by=2, at=START + second)
        tapped.observe("announce_batch", 3, at=START + second)
        await tapped.flush()
        tapped.count("scrapes", at=START + second)
    store.connection._lost(OSError())
    tapped.count("requests")
    await tapped.flush()
    await tapped.flush()
    assert await store.connection.reconnect()
    await tapped.flush()
    snapshot = telemetry.snapshot()
    assert snapshot.counts == {"requests": 11, "announces": 10, "scrapes": 5}
    assert sum(snapshot.histograms["announce_batch"].counts) == 5
    assert await figures(store) == {"requests": 11, "announces": 10, "scrapes": 5}


async def test_a_cancelled_write_is_repeated(store: Store) -> None:
    """A graceful stop loses nothing, wherever the loop was interrupted."""
    for turns in range(12):
        store.counters.count("requests")
        writer = asyncio.Task(store.counters.flush())
        for _ in range(turns):
            await asyncio.sleep(0)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
    await store.counters.flush()
    assert await figures(store) == {"requests": 12}


async def test_the_loop_writes_counts(store: Store) -> None:
    async def written() -> bool:
        return await figures(store) == {"scrapes": 9}

    async with in_background(store.counters.run(pause_seconds=0.001)):
        store.counters.count("scrapes", by=9)
        await eventually(written)


async def test_a_key_of_the_wrong_type_does_not_stop_the_others(store: Store) -> None:
    await store.redis.sadd(store.keys.stat("requests"), "a string")
    store.counters.count("requests")
    store.counters.count("announces")
    store.counters.count("failures.denied")
    with structlog.testing.capture_logs() as logs:
        await store.counters.flush()
    assert [(line["log_level"], line["keys"]) for line in logs] == [("error", 1)]
    assert await store.redis.get(store.keys.stat("announces")) == b"1"
    assert await store.redis.hget(store.keys.failures(), "denied") == b"1"


@pytest.mark.parametrize("at", [START, START + 59.999, START + 60, 86399.999, 86400, 0])
async def test_an_event_is_in_one_slice_of_each_precision(store: Store, at: float) -> None:
    """C1."""
    store.clock.now = at
    store.counters.count("scrapes", "scrapes.v6")
    store.counters.observe("seconds", 0.25)
    await store.counters.flush()
    for precision in PRECISIONS:
        start = b"%d" % start_of(at, precision)
        for name in ("scrapes", "scrapes.v6"):
            assert await store.redis.hgetall(store.keys.counter(precision, name)) == {start: b"1"}
        assert set(await store.redis.hgetall(store.keys.distribution(precision, "seconds"))) == {start}
    known = {f"{precision}:{name}".encode() for precision in PRECISIONS for name in ("scrapes", "scrapes.v6")}
    assert set(await store.redis.zrange(store.keys.known_counters(), 0, -1)) == known
    known = {f"{precision}:seconds".encode() for precision in PRECISIONS}
    assert set(await store.redis.zrange(store.keys.known_distributions(), 0, -1)) == known


async def test_boundaries_between_slices(store: Store) -> None:
    """C1: 59.999 is in one minute, 60 in the next."""
    for at in (START + 59.999, START + 60, START + 119.999):
        store.counters.count("n", at=at)
    await store.counters.flush()
    assert START % 60 == 0
    assert await store.redis.hgetall(store.keys.counter(60, "n")) == {b"%d" % START: b"1", b"%d" % (START + 60): b"2"}
    assert await store.redis.hgetall(store.keys.counter(300, "n")) == {b"%d" % START: b"3"}


async def test_late_and_future_events_are_in_the_slice_they_name(store: Store) -> None:
    """C7: also if newer events were written before."""
    times = [START, START - 100, START + 100, START - 10**6, START + 10**6, START]
    for at in times:
        store.counters.count("n", at=at)
        store.counters.observe("d", at, at=at)
        await store.counters.flush()
    for precision in PRECISIONS:
        expected = Counter(start_of(at, precision) for at in times)
        found = await store.redis.hgetall(store.keys.counter(precision, "n"))
        assert {int(start): int(number) for start, number in found.items()} == expected
        found = await store.redis.hgetall(store.keys.distribution(precision, "d"))
        assert {int(start): Distribution.decode(value).count for start, value in found.items()} == expected


@pytest.mark.parametrize(
    "name", ["a:b", "60:a", ":", "dist", "failures.it says: 100 % full", "ü\n~", "count:1:x", "x" * 500]
)
async def test_names_are_stored_unchanged(store: Store, name: str) -> None:
    """C8."""
    store.counters.count(name, by=3)
    store.counters.observe(name, 4)
    await store.counters.flush()
    assert await store.counters.names() == await store.counters.distribution_names() == [name]
    assert await store.counters.series(name, 60) == [(START, 3)]
    assert (await store.counters.distribution(name, 60))[1] == Distribution(1, 4, 0, 4, 4)


async def test_totals_of_all_time_are_kept_beside_the_slices(store: Store) -> None:
    """T20: for the counters that have one."""
    for name in ("announces", "scrapes", "requests", "reaps", "repairs", "forgotten", "tally_dropped"):
        store.counters.count(name, "failures.denied", "joins", by=2)
    store.clock.now += 3600
    store.counters.count("reaps", "failures.a.b", "failures.", by=2**53)
    await store.counters.flush()
    assert await figures(store) == {
        "announces": 2,
        "scrapes": 2,
        "requests": 2,
        "reaped": 2 + 2**53,
        "repairs": 2,
        "forgotten": 2,
        "tally_dropped": 2,
    }
    assert await store.counters.failures() == {"denied": 14, "a.b": 2**53}
    assert len(await store.redis.keys(f"{store.keys.prefix}stats:*")) == 8


async def test_a_count_of_zero_is_no_event(store: Store) -> None:
    store.counters.count("n", by=0)
    store.counters.observe("d", math.nan)
    await store.counters.flush()
    assert await store.counters.names() == await store.counters.distribution_names() == []


async def test_measurements_of_several_processes_form_one_distribution(store: Store, make_store: MakeStore) -> None:
    """C10: as if one process had measured everything."""
    other, values = await make_store(), [0.1 * number for number in range(100)]
    for number, value in enumerate(values):
        counters = (store.counters, other.counters)[number % 2]
        counters.observe("seconds", value, at=START - 50 + number // 2)
        if number % 7 == 0:
            await counters.flush()
    await store.counters.flush()
    await other.counters.flush()
    for precision in PRECISIONS:
        slices, total = await store.counters.distribution("seconds", precision)
        assert total is not None and total.count == len(values) == sum(one.count for _, one in slices)
        assert total.sum == pytest.approx(math.fsum(values))
        assert total.mean == pytest.approx(statistics.fmean(values))
        assert total.deviation == pytest.approx(statistics.pstdev(values))
        assert (total.min, total.max) == (min(values), max(values))


async def test_a_constant_series_stays_constant_in_the_store(store: Store) -> None:
    """C10: whatever its digits."""
    for value in (0.1, 1 / 3, 1e-300, 123456789.123456789, -7.7e200, 5):
        for _ in range(7):
            for _ in range(3):
                store.counters.observe(f"d{value}", value)
            await store.counters.flush()
        total = (await store.counters.distribution(f"d{value}", 1))[1]
        assert total is not None and (total.count, total.deviation) == (21, 0)
        assert total.mean == total.min == total.max == value


async def test_a_slice_of_the_wrong_type_does_not_stop_the_others(store: Store) -> None:
    await store.redis.set(store.keys.counter(60, "n"), "a string")
    await store.redis.set(store.keys.distribution(60, "d"), "a string")
    await store.redis.hset(store.keys.distribution(300, "d"), START, "no distribution")
    store.counters.count("n", "m")
    store.counters.observe("d", 1)
    store.counters.observe("e", 1)
    with structlog.testing.capture_logs() as logs:
        await store.counters.flush()
    assert [line["keys"] for line in logs] == [3]
    for name in ("n", "m"):
        assert await store.counters.series(name, 300) == [(START, 1)]
    for name in ("d", "e"):
        assert (await store.counters.distribution(name, 86400))[1] == Distribution(1, 1, 0, 1, 1)


async def test_exported_counts_wait_by_the_minute_of_the_event(store: Store) -> None:
    """In the outbox, up to its maximum."""
    exporting = Counters(store.shards, store.clock, exports=lambda name: name.startswith("a"), max_outbox=2)
    for name, at in (("b", 0), ("a", 59), ("a", 60), ("a:2", 61)):
        exporting.count(name, by=2, at=START + at)
    await exporting.flush()
    found = {minute: await store.redis.hgetall(f"{store.keys.prefix}outbox:{START + minute}") for minute in (0, 60)}
    assert found == {0: {b"a": b"2"}, 60: {b"a": b"2"}}
    assert (await store.counters.totals())["outbox_dropped"] == 2
    assert await store.counters.names() == ["a", "a:2", "b"]


async def test_an_outbox_of_the_wrong_type_stops_nothing(store: Store) -> None:
    counters = Counters(store.shards, store.clock, exports=lambda name: True, max_outbox=9)
    await store.redis.set(f"{store.keys.prefix}outbox:{START}", "a string")
    counters.count("a", "b")
    with structlog.testing.capture_logs() as logs:
        await counters.flush()
    assert [line["keys"] for line in logs] == [2]
    assert await store.counters.series("b", 1) == [(START, 1)]


async def test_an_outage_does_not_fill_the_memory(store: Store) -> None:
    """Counts too old for the precision of a second are kept by the minute, and so on. No slice that is shown is
    lost."""
    store.connection._lost(OSError())
    counted: Counter[int] = Counter()
    for number in range(3000):
        store.clock.now += 7
        store.counters.count("n", by=number + 1)
        store.counters.observe("d", number)
        counted[int(store.clock.now)] += number + 1
        if number % 10 == 0:
            await store.counters.flush()
    await store.counters.flush()
    assert len(store.counters._counts) < 400 and len(store.counters._measured) < 400
    assert await store.connection.reconnect()
    await store.counters.flush()
    for precision in PRECISIONS:
        expected: Counter[int] = Counter()
        for at, number in counted.items():
            expected[start_of(at, precision)] += number
        since = oldest_retained(store.clock.now, precision)
        shown = sorted((start, number) for start, number in expected.items() if start >= since)
        assert await store.counters.series("n", precision) == shown
    total = (await store.counters.distribution("d", 86400))[1]
    assert total is not None and (total.count, total.min, total.max) == (3000, 0, 2999)
    assert total.deviation == pytest.approx(statistics.pstdev(range(3000)))


async def test_a_backlog_is_written_in_bounded_batches(store: Store) -> None:
    for second in range(100):
        store.counters.count(*(f"n{number}" for number in range(40)), at=START - second)
    await store.redis.config_resetstat()
    await store.counters.flush()
    calls = (await store.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert 100 * 40 / 500 <= calls <= 20
    for number in (0, 39):
        assert sum(count for _, count in await store.counters.series(f"n{number}", 60)) == 100


async def test_a_graceful_stop_loses_nothing(store: Store, make_store: MakeStore) -> None:
    """C9."""
    loop = asyncio.Task(store.counters.run())
    for _ in range(50):
        store.counters.count("n")
        store.counters.observe("d", 1)
        await asyncio.sleep(0)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await store.counters.flush()
    assert await store.counters.series("n", 1) == [(START, 50)]
    assert (await store.counters.distribution("d", 1))[1] == Distribution(50, 1, 0, 1, 1)


COUNTING = """
import asyncio, os, sys, time
from tracker.store.stats import counters
from tracker.store.client.connection import Connection, connect
from tracker.store.sharding.shards import Shards
from tracker.store.stats.slices import PRECISIONS, Distribution, oldest_retained, start_of
from tracker.runtime.telemetry import Telemetry

async def main(url, prefix):
    connection = Connection(connect(url, connect_timeout=5, timeout=5))
    ours = counters.Counters(Shards.under(connection, prefix, 1), time.time)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ours.run(pause_seconds=0.2))
        while True:
            ours.count("n")
            os.write(1, b".")
            await asyncio.sleep(0.005)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_process_loses_what_it_counted_since_its_last_write(any_server: Server, store: Store) -> None:
    """C9: kill -9. It loses less than it counts in a second, at most 200; here it writes every 0.2 s."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COUNTING, any_server.url, store.keys.prefix, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        counted = len(await child.stdout.readexactly(300))
    finally:
        child.kill()
    counted += len(await child.stdout.read())
    await child.wait()
    store.clock.now = time.time()
    written = sum(number for _, number in await store.counters.series("n", 60))
    assert counted - 200 <= written <= counted and written > 0


async def figures(store: Store) -> dict[str, int]:
    return {name: value for name, value in (await store.counters.totals()).items() if value}


async def test_global_counts_exist_from_the_start(store: Store) -> None:
    """Readers get 0, not nil, from a tracker's first heartbeat on, and after a wipe too."""
    keys = {figure: store.keys.stat(figure) for figure in FIGURES}
    assert await store.redis.mget(keys.values()) == [None] * len(keys)
    await store.reaping.heartbeat()
    assert await store.redis.mget(keys.values()) == [b"0"] * len(keys)
    await store.redis.set(keys["announces"], "7")
    await store.redis.delete(keys["scrapes"])
    await store.redis.hset(keys["scrapes"], "some", "body's")
    await store.reaping.heartbeat()
    assert await store.redis.get(keys["announces"]) == b"7"
    assert await store.redis.type(keys["scrapes"]) == b"hash"
    async for _ in store.maintenance.wipe_statistics():
        pass
    await store.reaping.heartbeat()
    assert await store.redis.mget(keys.values()) == [b"0"] * len(keys)
