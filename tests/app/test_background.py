"""The background work of a tracker: what the jobs of each queue do."""

import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import ALICE, Clock, Store, info_hash, update
from tests.store.jobs.harness import jobs_of
from tests.store.work.harness import claimed
from tests.store.work.volunteers import ITEM, announce, seeding_project
from tests.waiting import eventually
from tests.workers.prober.peers import loopback
from tracker.app.background import (
    CHECK_CONNECTABLE,
    CLEAN_COUNTERS,
    WORK_POLICY,
    WORK_SIZES,
    WORK_VERIFY,
    build_prober,
    open_background,
)
from tracker.bittorrent import Address, InfoHash
from tracker.core.scoring import EMPTY, WEAK
from tracker.runtime.context import RuntimeContext
from tracker.runtime.telemetry import Telemetry
from tracker.settings.background import DhtSettings, ProbeSettings, ScoringSettings, StatsDSettings
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import UserSettings
from tracker.store.dht.torrents import RESULT_SECONDS
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import PROCESS_TORRENT, REPROCESS, SWEEP, Job
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.system.event_loop import running
from tracker.workers.reaper import Reaper


class RunningClock(Clock):
    def __call__(self) -> float:
        return time.time()


@pytest.fixture
async def store(redis_url: str, prefix: str, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """With a running clock, because leases of jobs and torrents end by it. The parameter: other rules."""
    rules: SwarmRules = getattr(request, "param", SwarmRules())
    store = Store(redis_url, Keys(prefix), rules, RunningClock())
    async with running(store.swarms.run):
        yield store
    await store.connection.close()


@pytest.fixture
async def background(store: Store) -> AsyncIterator[None]:
    """Runs nothing but jobs, so every effect comes from a job."""
    settings = Settings(scoring=ScoringSettings(enabled=False))
    context = RuntimeContext(store, LiveSettings(settings), Telemetry())
    reaper = Reaper(store, store.shards.main, lambda: 3600, time.time)
    async with running(store.connection.watch), open_background(context, reaper, _ignore_peer, build_prober(context)):
        yield


def _ignore_peer(info_hash: InfoHash, address: Address) -> None:
    del info_hash, address


async def test_users_that_a_site_wrote_are_adopted_at_the_start_and_by_a_sweep(store: Store, jobs: Jobs) -> None:
    settings = Settings(scoring=ScoringSettings(enabled=False), users=UserSettings(private="required"))
    context = RuntimeContext(store, LiveSettings(settings), Telemetry())
    reaper = Reaper(store, store.shards.main, lambda: 3600, time.time)

    async def adopted() -> bool:
        return await store.users.passkey_of("77") is not None

    await store.redis.hset(store.keys.passkey("s" * 20), "user_id", "77")
    async with running(store.connection.watch), open_background(context, reaper, _ignore_peer, build_prober(context)):
        await eventually(adopted)
        await store.redis.hset(store.keys.passkey("t" * 20), "user_id", "78")
        await complete(jobs, SWEEP)
        assert await store.users.passkey_of("78") == "t" * 20


@pytest.fixture
def jobs(store: Store) -> Jobs:
    """The job queues, as another process opens them."""
    return jobs_of(store, clock=time.time)


async def complete(jobs: Jobs, queue: str, payload: dict[str, object] | None = None) -> Job:
    """Enqueues a job, waits until it has finished, and asserts that it completed."""
    enqueued = await jobs.enqueue(queue, payload, max_retries=0)

    async def finished() -> bool:
        found = await jobs.get(enqueued.id)
        return found is not None and found.status in ("completed", "failed")

    await eventually(finished)
    job = await jobs.get(enqueued.id)
    assert job is not None and (job.status, job.error) == ("completed", ""), job
    return job


async def ranked(store: Store) -> dict[str, float]:
    return dict(await store.top_scores(10))


@pytest.mark.usefixtures("background")
async def test_the_peers_of_a_denied_torrent_are_removed(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.torrents.deny(info_hash(1), "no")

    async def empty() -> bool:
        return (await store.torrent(info_hash(1)))["leechers"] == "0"

    await eventually(empty)


@pytest.mark.usefixtures("background")
async def test_a_sweep_repairs_wrong_counts(store: Store, jobs: Jobs) -> None:
    for peer in range(5):
        await store.announce(update(peer, "s", bytes_left=peer % 2))
    await store.redis.hincrby(store.keys.torrent(info_hash(1)), "seeders", 7)
    await store.redis.incrby(store.keys.stat("leechers"), 3)
    await complete(jobs, SWEEP)
    assert await check_invariants(store.redis, store.keys) == 5
    await store.counters.flush()
    assert (await store.counters.totals())["repairs"] >= 2


@pytest.mark.usefixtures("background")
async def test_a_job_cleans_old_counters(store: Store, jobs: Jobs) -> None:
    """C3."""
    store.counters.count("old", at=time.time() - 10**8)
    store.counters.count("new")
    await store.counters.flush()
    known = store.keys.known_counters()
    # Two runs: the first may be the periodic one from before, and not every run cleans the long slices.
    await complete(jobs, CLEAN_COUNTERS)
    await complete(jobs, CLEAN_COUNTERS)
    left = {entry.decode() for entry in await store.redis.zrange(known, 0, -1)}
    assert left >= {f"{precision}:new" for precision in (1, 5, 60, 300)}
    assert not left & {f"{precision}:old" for precision in (1, 5, 60, 300)}


@pytest.mark.usefixtures("background")
async def test_an_interrupted_deletion_is_finished(store: Store, jobs: Jobs) -> None:
    user = await store.users.add("7")
    await store.redis.sadd(store.keys.user_set(7, "complete"), "1", "2", "3")
    assert await store.scripts.delete_user(["7", user.passkey, 2]) == 1
    await complete(jobs, CLEAN_COUNTERS)

    async def gone() -> bool:  # the first periodic job may be at it
        return not [key async for key in store.redis.scan_iter(f"{store.keys.user('7')}*")]

    await eventually(gone)
    assert not await store.redis.exists(store.keys.deleting())


@pytest.mark.usefixtures("background")
async def test_a_hit_and_run_of_a_removed_torrent_is_dropped(store: Store, jobs: Jobs) -> None:
    await store.redis.sadd(store.keys.user_set(7, "hnr"), "99")
    await store.users.reindex_hit_and_runs()
    await complete(jobs, CLEAN_COUNTERS)
    assert await store.users.hit_and_run_count() == 0


@pytest.mark.usefixtures("background")
async def test_a_job_scores_one_torrent(store: Store, jobs: Jobs) -> None:
    """B2: other torrents keep their score."""
    await store.torrents.add(info_hash(1))
    await store.torrents.add(info_hash(2))
    await complete(jobs, PROCESS_TORRENT, {"torrent_id": "1"})
    assert await ranked(store) == {"1": 0.5, "2": 1.0}


async def test_peers_found_in_the_dht_count_in_the_score(store: Store, jobs: Jobs) -> None:
    """D19: a swarm without own peers is weak, not empty, if the last lookup found some. Old results do not count."""
    now = int(time.time())
    for number, found, at in ((1, (0, 3), now), (2, (0, 0), now), (3, (1, 9), now - RESULT_SECONDS - 60)):
        await store.torrents.add(info_hash(number), {"private": "0"})
        assert await store.dht_torrents.save_result(info_hash(number), found, at, all_torrents=False)
    settings = Settings(scoring=ScoringSettings(enabled=False), dht=DhtSettings(enabled=True))
    context = RuntimeContext(store, LiveSettings(settings), Telemetry())
    reaper = Reaper(store, store.shards.main, lambda: 3600, time.time)
    async with running(store.connection.watch), open_background(context, reaper, _ignore_peer, build_prober(context)):
        for number in (1, 2, 3):
            await complete(jobs, PROCESS_TORRENT, {"torrent_id": str(number)})
    assert await ranked(store) == {"1": WEAK, "2": EMPTY, "3": EMPTY}


@pytest.mark.usefixtures("background")
async def test_reprocessing_scores_every_matching_torrent(store: Store, jobs: Jobs) -> None:
    """Q14: through the jobs it enqueues, which run in order."""
    for number in (1, 2, 3):
        await store.torrents.add(info_hash(number))
    await store.redis.zadd(store.keys.index("score"), {"3": 1.2})
    await complete(jobs, REPROCESS, {"max_score": 1.0})

    async def all_scored() -> bool:
        return (await jobs.sizes(PROCESS_TORRENT))["completed"] == 2

    await eventually(all_scored)
    assert await ranked(store) == {"1": 0.5, "2": 0.5, "3": 1.2}


@pytest.mark.usefixtures("background")
async def test_a_job_with_an_invalid_torrent_id_fails_with_the_reason(store: Store, jobs: Jobs) -> None:
    """Q10."""
    enqueued = await jobs.enqueue(PROCESS_TORRENT, {"torrent_id": "x"}, max_retries=0)

    async def failed() -> bool:
        found = await jobs.get(enqueued.id)
        return found is not None and found.status == "failed"

    await eventually(failed)
    job = await jobs.get(enqueued.id)
    assert job is not None and "needs a torrent_id" in job.error


@pytest.mark.usefixtures("background")
async def test_periodic_jobs_are_enqueued_without_a_request(jobs: Jobs) -> None:
    """Without a StatHat key or StatsD address, no push job is enqueued."""

    async def cleaned() -> bool:
        return (await jobs.sizes(CLEAN_COUNTERS))["completed"] > 0

    await eventually(cleaned)
    assert set(await jobs.queues()) <= {CLEAN_COUNTERS, WORK_POLICY, WORK_SIZES, WORK_VERIFY}


async def test_statsd_gets_the_current_numbers(store: Store) -> None:
    await store.swarms.announce(update(1, "s", bytes_left=0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        statsd = StatsDSettings(address=f"127.0.0.1:{receiver.getsockname()[1]}")
        live = LiveSettings(Settings(scoring=ScoringSettings(enabled=False), statsd=statsd))
        context = RuntimeContext(store, live, Telemetry())
        reaper = Reaper(store, store.shards.main, lambda: 3600, time.time)
        lines: list[bytes] = []

        async def arrived() -> bool:
            with suppress(BlockingIOError):
                lines.extend(receiver.recv(1500).splitlines())
            return any(b"microseconds" in line for line in lines)

        async with (
            running(store.connection.watch),
            open_background(context, reaper, _ignore_peer, build_prober(context)),
        ):
            await eventually(arrived)
    gauges = {b"torrents.count:1", b"peers:1", b"seeders:1", b"leechers:0", b"announces.microseconds:0"}
    assert gauges <= {line.removeprefix(b"tracker.").removesuffix(b"|g") for line in lines}


async def test_connectable_peers_are_checked_where_the_setting_asks_for_it(store: Store, jobs: Jobs) -> None:
    probe = ProbeSettings(enabled=True, connectable=True)
    live = LiveSettings(Settings(scoring=ScoringSettings(enabled=False), probe=probe))
    context = RuntimeContext(store, live, Telemetry())
    reaper = Reaper(store, store.shards.main, lambda: 3600, time.time)

    async def checked() -> bool:
        return (await jobs.sizes(CHECK_CONNECTABLE))["completed"] > 0

    async with running(store.connection.watch), open_background(context, reaper, _ignore_peer, build_prober(context)):
        await eventually(checked)


@pytest.mark.parametrize("store", [SwarmRules(accounts="required", max_gap=7200)], indirect=True)
async def test_probes_can_be_turned_on_without_a_restart(store: Store, jobs: Jobs) -> None:
    """Then the prober is asked; it refuses an address of loopback."""
    live = LiveSettings(Settings(scoring=ScoringSettings(enabled=False)))
    context = RuntimeContext(store, live, Telemetry())
    reaper = Reaper(store, store.shards.main, lambda: 3600, time.time)
    await store.users.add("7", ALICE)
    await seeding_project(store, verify="handshake")
    await claimed(store, "7")
    await announce(store, event="s", endpoint=loopback(6881))

    async def counted() -> bool:
        await complete(jobs, WORK_VERIFY)
        await store.redis.zadd(store.keys.work_checks("proj"), {f"{ITEM} 7": 0})  # its turn again
        await store.counters.flush()
        return await store.redis.zscore(store.keys.known_counters(), "60:probes.skipped") is not None

    async with running(store.connection.watch), open_background(context, reaper, _ignore_peer, build_prober(context)):
        assert not await counted()
        live.current = live.current.model_copy(update={"probe": ProbeSettings(enabled=True)})
        assert await counted()
