"""The scan that rescores torrents (row Q14)."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.store.harness import Store, info_hash
from tests.store.jobs.harness import check_queue_is_sound, claim, claim_one, jobs_of, status_of
from tests.waiting import eventually, in_background
from tests.workers.jobs import working
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import PROCESS_TORRENT, REPROCESS, Claimed
from tracker.workers.jobs import Queue
from tracker.workers.scorer import ScanLost, checked, rescore


async def torrents(store: Store, count: int) -> None:
    """Torrent n has n % 5 seeders and a score of n / 100."""
    ids = range(1, count + 1)
    await store.redis.mset({store.keys.torrent_id(n): info_hash(n).hex() for n in ids})
    await store.redis.zadd(store.keys.index("seeders"), {str(n): n % 5 for n in ids})
    await store.redis.zadd(store.keys.index("score"), {str(n): n / 100 for n in ids if n != 7})


async def enqueued(jobs: Jobs) -> list[int]:
    pages = [page async for page in jobs.pages(PROCESS_TORRENT, "pending", 500)]
    return sorted(int(job.payload.split('"')[3]) for page in pages for job in page)


def scan_of(store: Store, jobs: Jobs, **options: Any) -> Callable[..., Coroutine[Any, Any, None]]:
    options = {"max_waiting": 100_000, "pause": 0.02, **options}
    store.jobs = jobs
    return partial(rescore, store, **options)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, lambda n: True),
        ({"min_seeders": 3}, lambda n: n % 5 >= 3),
        ({"max_seeders": 0}, lambda n: n % 5 == 0),
        ({"max_score": 0.5}, lambda n: n <= 50 or n == 7),
        ({"min_score": 0.05, "max_score": 0.1}, lambda n: 5 <= n <= 10 and n != 7),
        ({"min_score": 2, "min_seeders": 4}, lambda n: n >= 200 and n % 5 == 4),
        ({"min_score": 99}, lambda n: False),
    ],
)
async def test_every_torrent_that_matches_the_filter_is_enqueued(
    store: Store, bounds: dict[str, float], expected: Any
) -> None:
    """Q14: all torrents, or by score and seeders."""
    jobs = jobs_of(store)
    await torrents(store, 300)
    await jobs.enqueue(REPROCESS, bounds)
    async with working(store, jobs, {REPROCESS: Queue(scan_of(store, jobs), resumes=True)}):
        await eventually(lambda: _is(jobs, "1", "completed"))
    assert await enqueued(jobs) == [n for n in range(1, 301) if expected(n)]
    await check_queue_is_sound(store, jobs, PROCESS_TORRENT)


async def _is(jobs: Jobs, id: str, status: str) -> bool:
    return await status_of(jobs, id) == status


async def test_an_interrupted_scan_resumes_at_its_cursor(store: Store) -> None:
    """Q14: killed after a few pages. The next run enqueues every remaining torrent once."""
    jobs = jobs_of(store, lease_seconds=30)
    await torrents(store, 3000)
    await jobs.enqueue(REPROCESS, {})
    job = await claim_one(jobs, REPROCESS)
    scan = scan_of(store, jobs, max_waiting=1000)

    async def is_full() -> bool:
        return len(await enqueued(jobs)) >= 1000

    async with in_background(scan({}, job)):  # it is killed while it waits for room
        await eventually(is_full)
    before = await enqueued(jobs)
    assert 1000 <= len(before) < 2500
    store.clock.now += 30
    again = await claim_one(jobs, REPROCESS)
    assert again.cursor.split()[1] != "0"
    with pytest.raises(ScanLost):  # the first run continues after its lease was lost
        await scan_of(store, jobs)({}, job)
    cursor = (await jobs.get(job.id)).cursor  # type: ignore[union-attr]  # it is there
    assert cursor == again.cursor
    await scan_of(store, jobs)({}, again)
    assert await enqueued(jobs) == list(range(1, 3001))
    assert (await jobs.sizes(PROCESS_TORRENT))["pending"] == 3000


async def test_a_second_scan_adds_no_jobs(store: Store) -> None:
    """Q14, Q2."""
    jobs = jobs_of(store)
    await torrents(store, 200)
    for bounds in ({}, {"min_score": 0.0}):
        await jobs.enqueue(REPROCESS, bounds)
        await scan_of(store, jobs)(bounds, await claim_one(jobs, REPROCESS))
    assert await enqueued(jobs) == list(range(1, 201))


async def test_a_cursor_of_another_server_run_is_ignored(store: Store) -> None:
    """Q14: after a restart of the server the scan starts again, so no torrent is left out."""
    jobs = jobs_of(store)
    await torrents(store, 1000)
    job: Claimed
    await jobs.enqueue(REPROCESS, {})
    job = (await claim_one(jobs, REPROCESS))._replace(cursor=f"{'f' * 40} 512")
    await scan_of(store, jobs)({}, job)
    assert len(await enqueued(jobs)) == 1000


async def test_the_scan_waits_while_the_queue_is_full(store: Store) -> None:
    """Memory is bounded for any number of torrents."""
    jobs = jobs_of(store, max_waiting=700)
    await torrents(store, 1500)
    await jobs.enqueue(REPROCESS, {})
    done: set[str] = set()

    async def process(payload: dict[str, Any]) -> None:
        done.add(payload["torrent_id"])

    scan = Queue(scan_of(store, jobs), resumes=True)
    async with working(store, jobs, {REPROCESS: scan, PROCESS_TORRENT: Queue(process, concurrency=100)}):
        await eventually(lambda: _is(jobs, "1", "completed"))
        assert await jobs.waiting(PROCESS_TORRENT) <= 700

        async def all_done() -> bool:
            return len(done) == 1500

        await eventually(all_done)


async def test_a_scan_of_an_empty_tracker_ends_at_once(store: Store) -> None:
    jobs = jobs_of(store)
    await jobs.enqueue(REPROCESS, {})
    await scan_of(store, jobs)({}, await claim_one(jobs, REPROCESS))
    assert not await claim(jobs, PROCESS_TORRENT)


@pytest.mark.parametrize("payload", [{"score": 1}, {"min_score": "1"}, {"max_seeders": True}, {"min_score": None}])
def test_an_invalid_filter_is_an_error(payload: dict[str, Any]) -> None:
    """Q10."""
    with pytest.raises(ValueError, match="filter"):
        checked(payload)
