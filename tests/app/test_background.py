"""The background half as a tracker opens it: the jobs of its queues do what they are named after."""

import time
from collections.abc import AsyncIterator

import pytest

from tests.store.harness import Store, info_hash, update
from tests.store.invariants import check_invariants
from tests.store.jobs import jobs_of
from tests.workers.jobs import until
from tracker.background import CLEAN_COUNTERS, open_background
from tracker.bittorrent import Address, InfoHash
from tracker.foundation import Foundation
from tracker.loops import running
from tracker.settings import ScoringSettings, Settings
from tracker.store.job import PROCESS_TORRENT, REPROCESS, SWEEP, Job
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.telemetry import Telemetry
from tracker.workers.reaper import Reaper


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """Its clock is the true one: the background half takes no other."""
    store = Store(redis_url, Keys(prefix), SwarmRules())
    store.clock.now = time.time()
    async with running(store.swarms.run):
        yield store
    await store.connection.close()


@pytest.fixture
async def background(store: Store) -> AsyncIterator[None]:
    """Nothing but the jobs runs: whatever happens, a job did it."""
    base = Foundation(store.connection, store.scripts, store.keys, store.counters, Telemetry())
    reaper = Reaper(store.reaping, store.connection, store.keys, store.counters, 3600, time.time)
    settings = Settings(scoring=ScoringSettings(enabled=False))
    async with running(store.connection.watch), open_background(settings, base, reaper, _nobody_counts):
        yield


def _nobody_counts(info_hash: InfoHash, address: Address) -> None:
    del info_hash, address


@pytest.fixture
def jobs(store: Store) -> Jobs:
    """Another process' view of the queues."""
    return jobs_of(store, clock=time.time)


async def done(jobs: Jobs, queue: str, payload: dict[str, object] | None = None) -> Job:
    """Enqueues a job, and waits until it is finished; it completed."""
    enqueued = await jobs.enqueue(queue, payload, max_retries=0)

    async def finished() -> bool:
        found = await jobs.get(enqueued.id)
        return found is not None and found.status in ("completed", "failed")

    await until(finished)
    job = await jobs.get(enqueued.id)
    assert job is not None and (job.status, job.error) == ("completed", ""), job
    return job


async def ranked(store: Store) -> dict[str, float]:
    return dict(await store.scores.top(10))


@pytest.mark.usefixtures("background")
async def test_a_sweep_repairs_what_does_not_agree(store: Store, jobs: Jobs) -> None:
    for peer in range(5):
        await store.announce(update(peer, "s", bytes_left=peer % 2))
    await store.redis.hincrby(store.keys.torrent(info_hash(1)), "seeders", 7)
    await store.redis.incrby(store.keys.stat("leechers"), 3)
    await done(jobs, SWEEP)
    assert await check_invariants(store.redis, store.keys) == 5
    await store.counters.flush()
    assert (await store.counters.totals())["repairs"] >= 2


@pytest.mark.usefixtures("background")
async def test_the_cleaner_runs_as_a_job(store: Store, jobs: Jobs) -> None:
    """C3."""
    store.counters.count("old", at=time.time() - 10**8)
    store.counters.count("new")
    await store.counters.flush()
    known = store.keys.known_counters()
    # The first run may be the periodic one, of before; long slices have their turn now and then only.
    await done(jobs, CLEAN_COUNTERS)
    await done(jobs, CLEAN_COUNTERS)
    left = {entry.decode() for entry in await store.redis.zrange(known, 0, -1)}
    assert left >= {f"{precision}:new" for precision in (1, 5, 60, 300)}
    assert not left & {f"{precision}:old" for precision in (1, 5, 60, 300)}


@pytest.mark.usefixtures("background")
async def test_a_deletion_that_was_cut_off_is_finished(store: Store, jobs: Jobs) -> None:
    user = await store.users.add("7")
    await store.redis.sadd(store.keys.user_set(7, "complete"), "1", "2", "3")
    assert await store.scripts.delete_user(["7", user.passkey, 2]) == 1
    await done(jobs, CLEAN_COUNTERS)
    assert not [key async for key in store.redis.scan_iter(f"{store.keys.user('7')}*")]
    assert not await store.redis.exists(store.keys.deleting())


@pytest.mark.usefixtures("background")
async def test_a_torrent_is_scored_by_a_job(store: Store, jobs: Jobs) -> None:
    """B2: the others are left alone."""
    await store.torrents.add(info_hash(1))
    await store.torrents.add(info_hash(2))
    await done(jobs, PROCESS_TORRENT, {"torrent_id": "1"})
    assert await ranked(store) == {"1": 0.5, "2": 1.0}


@pytest.mark.usefixtures("background")
async def test_reprocessing_scores_every_torrent_that_fits(store: Store, jobs: Jobs) -> None:
    """Q14: by the jobs it enqueues, which run in turn."""
    for number in (1, 2, 3):
        await store.torrents.add(info_hash(number))
    await store.redis.zadd(store.keys.index("score"), {"3": 1.2})
    await done(jobs, REPROCESS, {"max_score": 1.0})

    async def all_scored() -> bool:
        return (await jobs.sizes(PROCESS_TORRENT))["completed"] == 2

    await until(all_scored)
    assert await ranked(store) == {"1": 0.5, "2": 0.5, "3": 1.2}


@pytest.mark.usefixtures("background")
async def test_what_cannot_be_scored_fails_for_the_reason_it_has(store: Store, jobs: Jobs) -> None:
    """Q10."""
    enqueued = await jobs.enqueue(PROCESS_TORRENT, {"torrent_id": "x"}, max_retries=0)

    async def failed() -> bool:
        found = await jobs.get(enqueued.id)
        return found is not None and found.status == "failed"

    await until(failed)
    job = await jobs.get(enqueued.id)
    assert job is not None and "names a torrent_id" in job.error


@pytest.mark.usefixtures("background")
async def test_the_periodic_jobs_come_by_themselves(jobs: Jobs) -> None:
    """Figures go out only where somebody wants them."""

    async def cleaned() -> bool:
        return (await jobs.sizes(CLEAN_COUNTERS))["completed"] > 0

    await until(cleaned)
    assert await jobs.queues() == [CLEAN_COUNTERS]
