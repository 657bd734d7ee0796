"""The tally: joins become counted users behind the announce path, and nothing that fails counts twice (B8 to B12)."""

import asyncio
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from tests import trackers
from tests.servers import ROOT, Server
from tests.store.harness import START, Store, info_hash, running
from tests.store.proxy import Proxy
from tests.workers.tallying import LONDON, NOBODY_KNOWS, Tallying, address
from tracker.bittorrent import Address
from tracker.geoip import Place
from tracker.settings import UniqueSettings
from tracker.store.keys import Keys
from tracker.store.metrics import metrics, place_names
from tracker.store.swarms import SwarmRules
from tracker.store.uniques import MAX_BATCH, Sighting, Uniques
from tracker.workers import tally

TORRENT = f"torrents.{info_hash(1).hex()}.users"
SECONDS = 20.0


@pytest.fixture(autouse=True)
def no_long_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "LINGER_SECONDS", 0.02)


@pytest.fixture
async def work(store: Store) -> Tallying:
    """A tally that does not run; torrents 1 to 3 exist."""
    for torrent in (1, 2, 3):
        await store.torrents.add(info_hash(torrent))
    return Tallying(store)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < SECONDS
        await asyncio.sleep(0.01)


async def all_counted(work: Tallying) -> None:
    async def done() -> bool:
        return work.tally.waiting == 0

    await until(done)


class Recorded(Uniques):
    """Remembers the batches, and fails as often as it is told."""

    failures = 0

    async def sight(self, batch: Sequence[Sighting], now: float) -> int:
        self.batches = [*getattr(self, "batches", []), (len(batch), now)]
        if self.failures:
            self.failures -= 1
            raise ResponseError("the script failed")
        return await super().sight(batch, now)


def recorded(store: Store) -> Recorded:
    return Recorded(store.connection, store.scripts, store.keys)


async def test_joins_are_counted_with_their_places(work: Tallying) -> None:
    """B8: in all seven metrics; what is new to a torrent is counted."""
    work.offer(2, 4, 2)
    work.offer(3, torrent=2)
    await work.tally.flush()
    seven = metrics(info_hash(1), place_names("GB", "ENG", "London", "SW1A"))
    assert await work.figures(*seven) == [2] * 7
    assert await work.figures("cities.FR/IDF/Paris.users", f"torrents.{info_hash(2).hex()}.users") == [1, 1]
    assert work.counts == {"unique.new": 3}


async def test_joins_are_counted_while_it_runs_in_batches(work: Tallying, store: Store) -> None:
    """At most 64 in one call, and few calls for few joins."""
    users = recorded(store)
    work = Tallying(store, users)
    async with work.at_work():
        work.offer(*range(200))
        await all_counted(work)
        assert sum(size for size, _ in users.batches) == 200
        assert max(size for size, _ in users.batches) == MAX_BATCH
        before = len(users.batches)
        for number in range(10):
            work.offer(1000 + number)
            await asyncio.sleep(0)
        await all_counted(work)
        assert len(users.batches) - before <= 2
    assert await work.figures(TORRENT) == [210]


async def test_ipv6_counts_by_its_network(store: Store, work: Tallying) -> None:
    """B10: by its /64, or by what the setting says; it is looked up as a whole."""
    one, same, near = (
        Address(bytes.fromhex(text))
        for text in (
            "2a00145000010002000000000000000a",
            "2a00145000010002ffffffffffffffff",
            "2a001450000100030000000000000001",
        )
    )
    for number, (prefix, users) in enumerate([(64, 2), (48, 1), (128, 3)], 1):
        settings = UniqueSettings(ipv6_prefix=prefix)
        work = Tallying(store, settings=settings, places={one: LONDON, same: LONDON, near: LONDON})
        for seen in (one, same, near):
            work.tally.offer(info_hash(number), seen)
        await work.tally.flush()
        assert await work.figures(f"torrents.{info_hash(number).hex()}.users") == [users]
        assert work.asked == [one, same, near]


async def test_private_addresses_are_where_the_database_says(store: Store, work: Tallying) -> None:
    """B10: published ones know none of them, so they count in their torrent only; an operator's own may."""
    private = [
        Address(bytes.fromhex(text))
        for text in ("0a000001", "7f000001", "c0a80101", "fe800000000000000000000000000001")
    ]
    work = Tallying(store, places={**dict.fromkeys(private), private[0]: LONDON})
    for at in private:
        work.tally.offer(info_hash(1), at)
    await work.tally.flush()
    assert await work.figures(TORRENT, "countries.GB.users") == [4, 1]


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (None, set()),
        (Place(), set()),
        (Place("GB"), {"countries"}),
        (Place("GB", "ENG", "", "SW1A"), {"countries", "postcodes"}),
        (Place("GB", "", "London"), {"countries", "cities"}),
        (Place("", "", "Atlantis", "1"), set()),
    ],
)
async def test_what_is_not_known_of_an_address_leaves_the_rest(
    store: Store, work: Tallying, place: Place | None, named: set[str]
) -> None:
    """B10: unknown address, missing city or postcode."""
    work = Tallying(store, places={address(1): place})
    work.offer(1)
    await work.tally.flush()
    assert await work.figures(TORRENT) == [1]
    assert {scope for scope, _ in await store.uniques.places(info_hash(1))} == named


async def test_without_a_database_torrents_are_counted(store: Store, work: Tallying) -> None:
    """B10."""
    work = Tallying(store, places=NOBODY_KNOWS)
    work.offer(1, 2, 3)
    await work.tally.flush()
    assert await work.figures(TORRENT, "countries.GB.users") == [3, 0]


async def test_what_is_too_much_is_dropped_and_counted(
    store: Store, work: Tallying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded; one line says how many, whatever their number."""
    monkeypatch.setattr(tally, "LOG_SECONDS", 0.01)
    work = Tallying(store, settings=UniqueSettings(max_waiting=64))
    work.offer(*range(100))
    assert (work.tally.waiting, work.counts["tally_dropped"]) == (64, 36)
    with capture_logs() as logs:
        async with work.at_work():
            await all_counted(work)
            await asyncio.sleep(0.1)
    assert [(line["log_level"], line["joins"]) for line in logs] == [("warning", 36)]
    assert await work.figures(TORRENT) == [64]


async def test_places_are_refreshed(work: Tallying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "REFRESH_SECONDS", 0.01)

    async def twice() -> bool:
        return work.refreshed >= 2

    async with work.at_work():
        await until(twice)


# The store fails


@pytest.fixture
async def own(start_server: Callable[..., Server], prefix: str) -> AsyncIterator[tuple[Server, Tallying]]:
    """A server of the test's own, and a tally on it."""
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await store.torrents.add(info_hash(1))
        yield server, Tallying(store)


async def test_a_store_that_is_away_delays_and_loses_nothing(own: tuple[Server, Tallying]) -> None:
    """B10: neither does it count twice."""
    server, work = own
    async with work.at_work():
        work.offer(*range(10))
        await all_counted(work)
        server.stop()
        work.offer(*range(5, 105))
        await asyncio.sleep(0.6)
        assert work.tally.waiting == 100
        server.start()
        await all_counted(work)
    assert await work.figures(TORRENT, "countries.GB.users", "countries.FR.users") == [105, 53, 52]
    assert work.counts["tally_dropped"] == 0


async def test_a_lost_answer_counts_once(valkey: Server, prefix: str) -> None:
    """B9: the store has the batch, the tally does not know, and sends it again, with its time."""
    async with Proxy(valkey) as proxy:
        async with running(Store(proxy.url, Keys(prefix), SwarmRules())) as far:
            await far.torrents.add(info_hash(1))
            users = recorded(far)
            work = Tallying(far, users)
            async with work.at_work():
                work.offer(1)  # opens a connection, and brings the script to the server
                await all_counted(work)
                proxy.swallow_answers()
                work.offer(2, 3)
                work.clock.now += 7
                await all_counted(work)
            lost, again = users.batches[-2:]
            assert lost == again == (2, START + 7)
            assert await far.uniques.figure(TORRENT) == 3


async def test_a_full_store_is_waited_for(
    own: tuple[Server, Tallying], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "_PAUSE_SECONDS", 0.01)
    _, work = own
    await work.store.redis.config_set("maxmemory", 1)
    async with work.at_work():
        work.offer(*range(10))
        await asyncio.sleep(0.5)
        assert work.tally.waiting == 10
        await work.store.redis.config_set("maxmemory", 0)
        await all_counted(work)
    assert await work.figures(TORRENT) == [10]
    assert work.counts["tally_dropped"] == 0


@pytest.mark.parametrize(("failures", "dropped"), [(2, 0), (5, 10)])
async def test_a_batch_that_always_fails_does_not_stop_the_others(
    store: Store, work: Tallying, monkeypatch: pytest.MonkeyPatch, failures: int, dropped: int
) -> None:
    monkeypatch.setattr(tally, "_PAUSE_SECONDS", 0.01)
    users = recorded(store)
    users.failures = failures
    work = Tallying(store, users)
    async with work.at_work():
        work.offer(*range(10))
        await all_counted(work)
        work.offer(*range(10, 15))
        await all_counted(work)
    assert work.counts["tally_dropped"] == dropped
    assert await work.figures(TORRENT) == [15 - dropped]


# The end


async def test_a_graceful_stop_counts_what_waits(work: Tallying) -> None:
    """Also while a batch is on its way, and when the loop was cancelled in the middle of one."""
    async with work.at_work():
        work.offer(*range(500))
        await asyncio.sleep(0.02)
        await work.tally.flush()
        assert work.tally.waiting == 0
        work.offer(*range(500, 700))
        await asyncio.sleep(0.005 * random.random())
    await work.tally.flush()
    assert await work.figures(TORRENT) == [700]
    # What was new in a batch is told with its answer, which the cancellation may have cost.
    assert 700 - MAX_BATCH <= work.counts["unique.new"] <= 700


async def test_a_stop_does_not_wait_for_a_store_that_is_away(own: tuple[Server, Tallying]) -> None:
    """What is lost is counted and said."""
    server, work = own
    server.kill()
    work.offer(*range(100))
    with capture_logs() as logs:
        async with asyncio.timeout(SECONDS):
            await work.tally.flush()
    assert (work.tally.waiting, work.counts["tally_dropped"]) == (0, 100)
    assert [line["joins"] for line in logs if "stop" in line["event"]] == [100]


async def test_a_stop_takes_no_longer_than_it_may(
    store: Store, work: Tallying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "FLUSH_SECONDS", 0.05)

    class Slow(Uniques):
        async def sight(self, batch: Sequence[Sighting], now: float) -> int:
            await asyncio.sleep(60)
            return 0

    work = Tallying(store, Slow(store.connection, store.scripts, store.keys))
    work.offer(*range(100))
    async with asyncio.timeout(SECONDS):
        await work.tally.flush()
    assert work.counts["tally_dropped"] == 100


@pytest.mark.slow
async def test_killed_between_batches_every_marker_has_its_counts(valkey: Server, prefix: str) -> None:
    """B9: SIGKILL at any moment; whoever comes next counts the rest, and nobody twice."""
    async with running(Store(valkey.url, Keys(prefix), SwarmRules())) as store:
        for torrent in (1, 2, 3):
            await store.torrents.add(info_hash(torrent))
        counted = []
        for _ in range(2):
            await asyncio.to_thread(_count_and_die, valkey.url, prefix, random.uniform(0.0, 0.15))
            counted.append(await _consistent(store))
        assert counted == sorted(counted)
        assert await asyncio.to_thread(_count_and_die, valkey.url, prefix, None) == "done"
        assert await _consistent(store) == 3000
        assert await store.uniques.figure("countries.GB.users") == 1500


def _count_and_die(url: str, prefix: str, after: float | None) -> str:
    """Counts 3,000 addresses in a process of its own that is killed so many seconds after it began; its last word."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.tallying", url, prefix, "0", "3000"],
        cwd=ROOT,
        env=trackers.environment({}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        word = child.stdout.readline().strip()
        if after is None:
            return child.stdout.readline().strip()
        time.sleep(after)
        return word
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


async def _consistent(store: Store) -> int:
    """Each metric has as many markers as counts; the answer is how many addresses torrents 1 to 3 have."""
    marks: Counter[str] = Counter()
    totals: dict[str, tuple[int, int]] = {}
    async for raw in store.redis.scan_iter(f"{store.keys.prefix}*.users*", 1000):
        metric, _, rest = raw.decode().removeprefix(store.keys.prefix).partition(".users")
        if re.fullmatch(r"\.[0-9.]+", rest):
            marks[metric] += 1
        elif not rest:
            name = f"{metric}.users"
            month = time.strftime("%Y-%m", time.gmtime(START))
            totals[metric] = (await store.uniques.figure(name), await store.uniques.figure(name, month))
    assert totals == {metric: (count, count) for metric, count in marks.items()}
    new = [int((await store.torrent(info_hash(torrent))).get("new", 0)) for torrent in (1, 2, 3)]
    users = [totals.get(f"torrents.{info_hash(torrent).hex()}", (0, 0))[0] for torrent in (1, 2, 3)]
    assert new == users
    return sum(users)
