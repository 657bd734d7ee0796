"""Unique users are counted outside the announce path, and no failure counts one twice (B8 to B12)."""

import asyncio
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from redis import Redis as BlockingRedis
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from loadtest import trackers
from loadtest.servers import ROOT, Server
from tests.store.client.proxy import Proxy
from tests.store.harness import START, Store, info_hash, running
from tests.store.stats.metrics import metrics
from tests.waiting import until
from tests.workers.user_counting import LONDON, NO_PLACES, UserCounting, address
from tracker.bittorrent import Address
from tracker.geoip import Place
from tracker.settings.background import UniqueSettings
from tracker.store.schema.keys import Keys
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.unique_users import MAX_BATCH, UniqueRules, UniqueUserEvent, UniqueUsers
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.join_counts import LOG_SECONDS, REFRESH_SECONDS

TORRENT = f"torrents.{info_hash(1).hex()}.users"
SECONDS = 20.0


@pytest.fixture
async def work(store: Store) -> UserCounting:
    """A counter that does not run; torrents 1 to 3 exist."""
    for torrent in (1, 2, 3):
        await store.torrents.add(info_hash(torrent))
    return UserCounting(store)


async def all_counted(work: UserCounting) -> None:
    async def done() -> bool:
        return work.counter.waiting == 0

    await work.time.pass_until(done)


class Recorded(UniqueUsers):
    """Records the batches, and fails ``failures`` times."""

    failures = 0

    async def count(self, batch: Sequence[UniqueUserEvent], now: float) -> int:
        self.batches = [*getattr(self, "batches", []), (len(batch), now)]
        if self.failures:
            self.failures -= 1
            raise ResponseError("the script failed")
        return await super().count(batch, now)


def recorded(store: Store) -> Recorded:
    return Recorded(store.shards)


async def test_joins_are_counted_with_their_places(work: UserCounting) -> None:
    """B8: in all seven metrics."""
    work.add(2, 4, 2)
    work.add(3, torrent=2)
    await work.counter.flush()
    seven = metrics(info_hash(1), place_names("United Kingdom", "London", "SW1A"))
    assert await work.counts_of(*seven) == [2] * 7
    assert await work.counts_of("countries.France.cities.Paris.users", f"torrents.{info_hash(2).hex()}.users") == [1, 1]
    assert work.counts == {"unique.new": 3}


async def test_a_running_counter_sends_joins_in_batches(work: UserCounting, store: Store) -> None:
    """At most 64 in a call, and few calls for few joins."""
    users = recorded(store)
    work = UserCounting(store, users)
    async with work.at_work():
        work.add(*range(200))
        await all_counted(work)
        assert sum(size for size, _ in users.batches) == 200
        assert max(size for size, _ in users.batches) == MAX_BATCH
        before = len(users.batches)
        for number in range(10):
            work.add(1000 + number)
            await asyncio.sleep(0)
        await all_counted(work)
        assert len(users.batches) - before <= 2
    assert await work.counts_of(TORRENT) == [210]


async def test_ipv6_users_are_counted_by_network(store: Store, work: UserCounting) -> None:
    """B10: by the /64 or the setting's prefix. The lookup takes the whole address."""
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
        work = UserCounting(store, settings=settings, places={one: LONDON, same: LONDON, near: LONDON})
        for seen in (one, same, near):
            work.counter.add(info_hash(number), seen)
        await work.counter.flush()
        assert await work.counts_of(f"torrents.{info_hash(number).hex()}.users") == [users]
        assert work.lookups == [one, same, near]


async def test_private_addresses_have_the_places_of_the_database(store: Store, work: UserCounting) -> None:
    """B10: published databases have none, so they count in their torrent only. An operator's own may have some."""
    private = [
        Address(bytes.fromhex(text))
        for text in ("0a000001", "7f000001", "c0a80101", "fe800000000000000000000000000001")
    ]
    work = UserCounting(store, places={**dict.fromkeys(private), private[0]: LONDON})
    for at in private:
        work.counter.add(info_hash(1), at)
    await work.counter.flush()
    assert await work.counts_of(TORRENT, "countries.United_Kingdom.users") == [4, 1]


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (None, set()),
        (Place(), set()),
        (Place("GB", country_name="United Kingdom"), {"countries"}),
        (Place("GB", "ENG", "", "SW1A", "United Kingdom"), {"countries", "postcodes"}),
        (Place("GB", "", "London", country_name="United Kingdom"), {"countries", "cities"}),
        (Place("", "", "Atlantis", "1"), set()),
    ],
)
async def test_an_unknown_city_or_postcode_leaves_the_other_metrics(
    store: Store, work: UserCounting, place: Place | None, named: set[str]
) -> None:
    """B10."""
    work = UserCounting(store, places={address(1): place})
    work.add(1)
    await work.counter.flush()
    assert await work.counts_of(TORRENT) == [1]
    assert {scope for scope, _ in await store.unique_users.places(info_hash(1))} == named


async def test_without_a_database_users_are_counted_by_torrent(store: Store, work: UserCounting) -> None:
    """B10."""
    work = UserCounting(store, places=NO_PLACES)
    work.add(1, 2, 3)
    await work.counter.flush()
    assert await work.counts_of(TORRENT, "countries.United_Kingdom.users") == [3, 0]


async def test_joins_beyond_the_queue_are_dropped_and_counted(store: Store, work: UserCounting) -> None:
    """One log line gives the number of dropped joins."""
    work = UserCounting(store, max_waiting=64)
    work.add(*range(100))
    assert (work.counter.waiting, work.counts["tally_dropped"]) == (64, 36)
    with capture_logs() as logs:
        async with work.at_work():
            await all_counted(work)
            await work.time.pass_by(3 * LOG_SECONDS)
    assert [(line["log_level"], line["joins"]) for line in logs] == [("warning", 36)]
    assert await work.counts_of(TORRENT) == [64]


async def test_the_geoip_database_is_refreshed(work: UserCounting) -> None:
    async with work.at_work():
        await work.time.pass_until(lambda: work.refreshed >= 3)
    assert work.time.now == 2 * REFRESH_SECONDS


# The store fails


@pytest.fixture
async def own(start_server: Callable[..., Server], prefix: str) -> AsyncIterator[tuple[Server, UserCounting]]:
    """A server of the test's own, and a counter on it."""
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await store.torrents.add(info_hash(1))
        yield server, UserCounting(store)


async def test_an_outage_of_the_store_delays_counts_and_loses_none(own: tuple[Server, UserCounting]) -> None:
    """B10: no join counts twice."""
    server, work = own
    async with work.at_work():
        work.add(*range(10))
        await all_counted(work)
        server.stop()
        work.add(*range(5, 105))
        await work.time.pass_by(10 * REFRESH_SECONDS)
        assert work.counter.waiting == 100
        server.start()
        await all_counted(work)
    assert await work.counts_of(TORRENT, "countries.United_Kingdom.users", "countries.France.users") == [105, 53, 52]
    assert work.counts["tally_dropped"] == 0


async def test_a_batch_whose_reply_is_lost_counts_once(valkey: Server, prefix: str) -> None:
    """B9: the counter sends the batch again with its time, although the store has it."""
    async with Proxy(valkey) as proxy:
        async with running(Store(proxy.url, Keys(prefix), SwarmRules())) as far:
            await far.torrents.add(info_hash(1))
            users = recorded(far)
            work = UserCounting(far, users)
            async with work.at_work():
                work.add(1)  # opens a connection and loads the script
                await all_counted(work)
                proxy.swallow_answers()
                work.add(2, 3)
                work.clock.now += 7
                await all_counted(work)
            lost, again = users.batches[-2:]
            assert lost == again == (2, START + 7)
            assert await far.unique_users.users_of(TORRENT) == 3


async def test_joins_wait_while_the_store_is_full(own: tuple[Server, UserCounting]) -> None:
    """The store then counts by estimates, which need little memory."""
    store = own[1].store
    estimates = UniqueUsers(store.shards, UniqueRules("hyperloglog"))
    work = UserCounting(store, estimates)
    await store.redis.config_set("maxmemory", 1)
    async with work.at_work():
        work.add(*range(10))
        await work.time.pass_by(10 * REFRESH_SECONDS)
        assert work.counter.waiting == 10
        await store.redis.config_set("maxmemory", 0)
        await all_counted(work)
    assert await work.counts_of(TORRENT) == [10]
    assert work.counts["tally_dropped"] == 0


async def test_joins_skipped_by_a_nearly_full_store_are_counted_as_skipped(own: tuple[Server, UserCounting]) -> None:
    _, work = own
    await work.store.redis.config_set("maxmemory", 1)
    work.add(*range(70))
    await work.counter.flush()
    assert (work.counter.waiting, work.counts["unique_skipped"], work.counts["tally_dropped"]) == (0, 70, 0)
    assert await work.counts_of(TORRENT) == [0]


@pytest.mark.parametrize(("failures", "dropped"), [(2, 0), (5, 10)])
async def test_a_batch_that_always_fails_is_dropped(
    store: Store, work: UserCounting, failures: int, dropped: int
) -> None:
    users = recorded(store)
    users.failures = failures
    work = UserCounting(store, users)
    async with work.at_work():
        work.add(*range(10))
        await all_counted(work)
        work.add(*range(10, 15))
        await all_counted(work)
    assert work.counts["tally_dropped"] == dropped
    assert await work.counts_of(TORRENT) == [15 - dropped]


# Stopping


async def test_a_flush_counts_all_waiting_joins(work: UserCounting) -> None:
    """Also while a batch is being sent, and after a cancellation during a batch."""
    async with work.at_work():
        work.add(*range(500))
        await work.time.pass_until(lambda: work.counter.waiting < 500)
        await work.counter.flush()
        assert work.counter.waiting == 0
        work.add(*range(500, 700))
        await work.time.pass_until(lambda: work.counter.waiting < random.choice((200, 100, 1)))
    await work.counter.flush()
    assert await work.counts_of(TORRENT) == [700]
    # The cancellation may have lost the reply, which contains the number of new users.
    assert 700 - MAX_BATCH <= work.counts["unique.new"] <= 700


async def test_a_flush_does_not_wait_for_an_unavailable_store(own: tuple[Server, UserCounting]) -> None:
    """The loss is counted and logged."""
    server, work = own
    server.kill()
    work.add(*range(100))
    with capture_logs() as logs:
        async with asyncio.timeout(SECONDS):
            await work.counter.flush()
    assert (work.counter.waiting, work.counts["tally_dropped"]) == (0, 100)
    assert [line["joins"] for line in logs if "shutdown" in line["event"]] == [100]


async def test_a_flush_ends_within_its_time_limit(store: Store, work: UserCounting) -> None:
    class Slow(UniqueUsers):
        async def count(self, batch: Sequence[UniqueUserEvent], now: float) -> int:
            await asyncio.Event().wait()
            return 0

    work = UserCounting(store, Slow(store.shards), flush_seconds=0.05)
    work.add(*range(100))
    async with asyncio.timeout(SECONDS):
        await work.counter.flush()
    assert work.counts["tally_dropped"] == 100


@pytest.mark.slow
async def test_after_a_kill_markers_and_counts_agree(valkey: Server, prefix: str) -> None:
    """B9: SIGKILL at any moment. The next process counts the remaining users, and none twice."""
    async with running(Store(valkey.url, Keys(prefix), SwarmRules())) as store:
        for torrent in (1, 2, 3):
            await store.torrents.add(info_hash(torrent))
        counted = []
        for _ in range(2):
            await asyncio.to_thread(_count_and_die, valkey.url, prefix, random.randrange(700))
            counted.append(await _consistent(store))
        assert counted == sorted(counted)
        assert await asyncio.to_thread(_count_and_die, valkey.url, prefix, None) == "done"
        assert await _consistent(store) == 3000
        assert await store.unique_users.users_of("countries.United_Kingdom.users") == 1500


def _count_and_die(url: str, prefix: str, after: int | None) -> str:
    """Counts 3,000 addresses, of 1,500 users, in a process that is killed when it has counted this many; returns its
    last line."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.user_counting", url, prefix, "0", "3000"],
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
        with BlockingRedis.from_url(url) as client:
            name = f"{prefix}countries.United_Kingdom.users"
            until(lambda: int(client.get(name) or 0) >= after, poll_seconds=0.001)
        return word
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


async def _consistent(store: Store) -> int:
    """Checks that each metric has as many markers as counts; returns the number of addresses in torrents 1 to 3."""
    marks: Counter[str] = Counter()
    totals: dict[str, tuple[int, int]] = {}
    async for raw in store.redis.scan_iter(f"{store.keys.prefix}*.users*", 1000):
        metric, _, rest = raw.decode().removeprefix(store.keys.prefix).partition(".users")
        if re.fullmatch(r"\.[0-9.]+", rest):
            marks[metric] += 1
        elif not rest:
            name = f"{metric}.users"
            month = time.strftime("%Y-%m", time.gmtime(START))
            totals[metric] = (await store.unique_users.users_of(name), await store.unique_users.users_of(name, month))
    assert totals == {metric: (count, count) for metric, count in marks.items()}
    new = [int((await store.torrent(info_hash(torrent))).get("new", 0)) for torrent in (1, 2, 3)]
    users = [totals.get(f"torrents.{info_hash(torrent).hex()}", (0, 0))[0] for torrent in (1, 2, 3)]
    assert new == users
    return sum(users)
