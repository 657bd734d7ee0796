"""Job workers: handlers that fail, hang and are stopped, and the results of their jobs (section Q)."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import Clock, Store
from tests.store.jobs.harness import Metrics, check_queue_is_sound, jobs_of, status_of
from tests.waiting import eventually, loop_turns
from tests.workers.jobs import calls, passes, working
from tracker.store.jobs.records import Claimed
from tracker.workers.jobs import ABANDONED_SECONDS, JobWorker, Queue

Payload = dict[str, Any]


class Weird(BaseException):
    """A BaseException that is no Exception."""

    def __str__(self) -> str:
        raise RuntimeError("cannot say")


def has(store: Store, status: str, id: str = "1") -> Any:
    """A condition: job ``id`` has that status."""
    jobs = jobs_of(store)

    async def check() -> bool:
        return await status_of(jobs, id) == status

    return check


async def test_an_idle_worker_starts_a_job_at_once(store: Store) -> None:
    """Q15, Q12: with the defaults, within a second. Its waiting time and run time are measured."""
    metrics, begun = Metrics(), asyncio.Event()
    jobs = jobs_of(store, metrics, clock=time.time)

    async def handler(payload: Payload) -> None:
        assert payload == {"x": 1}
        begun.set()

    async with working(store, jobs, {"q": handler}, poll_seconds=0.5, clock=time.time) as worker:
        await passes(worker)  # the worker is idle now
        await jobs.enqueue("q", {"x": 1})
        await asyncio.wait_for(begun.wait(), 10)
        await eventually(has(store, "completed"))
    (waited,), (ran,) = metrics.values["jobs.q.wait_seconds"], metrics.values["jobs.q.run_seconds"]
    assert waited < 1
    assert 0 < ran < 10
    assert metrics.counts == {"jobs.q.pending": 1, "jobs.q.running": 1, "jobs.q.completed": 1}


async def test_an_idle_worker_polls_all_queues_in_one_call_per_half_second(store: Store) -> None:
    """Q15: one script call in each interval, however many queues."""

    async def handler(payload: Payload) -> None: ...

    queues = dict.fromkeys(("a", "b", "c", "d"), handler)
    jobs = jobs_of(store)
    async with working(store, jobs, queues, poll_seconds=0.05) as worker:
        await passes(worker)
        before = await calls(store)

        async def polled() -> bool:
            return await calls(store) >= before + 6

        assert await eventually(polled) >= 4 * 0.05


async def test_a_failing_job_runs_as_often_as_its_retries_allow(store: Store) -> None:
    """Q4."""
    runs: list[int] = []

    async def handler(payload: Payload) -> None:
        runs.append(len(runs))
        raise ValueError(f"run {len(runs)}")

    jobs = jobs_of(store)
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "failed"))
    job = await jobs.get("1")
    assert job is not None and (len(runs), job.retries, job.error) == (3, 2, "ValueError: run 3")


async def test_retries_back_off_exponentially_with_jitter(store: Store) -> None:
    """Q4: up to an hour."""
    worker = JobWorker(jobs_of(store), store.connection, {}, clock=store.clock)
    for retries in range(20):
        delays = {worker._backoff_seconds(retries) for _ in range(20)}
        usual = min(10 * 2**retries, 3600)
        assert len(delays) > 10 and 0.5 * usual <= min(delays) <= max(delays) <= 1.5 * usual


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\ud800 no text"),
        SystemExit(3),
        KeyboardInterrupt(),
        Weird(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_any_error_of_a_handler_fails_only_its_job(store: Store, error: BaseException) -> None:
    """Q10: the queue continues."""

    async def handler(payload: Payload) -> None:
        if payload["n"] == 1:
            raise error

    jobs = jobs_of(store, max_retries=1)
    await jobs.enqueue_many("q", [{"n": 1}, {"n": 2}])
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "failed", "1"))
        await eventually(has(store, "completed", "2"))
    job = await jobs.get("1")
    assert job is not None and job.error.startswith(type(error).__name__)


@pytest.mark.parametrize("payload", [b"{", b"[]", b"\xff", b"[" * 100_000, b"null", b""])
async def test_an_unreadable_payload_fails_at_once(store: Store, payload: bytes) -> None:
    """Q10: without a retry."""

    async def handler(payload: Payload) -> None: ...

    jobs = jobs_of(store)
    await jobs.enqueue_many("q", [{"n": 1}, {"n": 2}])
    await store.redis.hset(store.keys.job("1"), "payload", payload)
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "failed", "1"))
        await eventually(has(store, "completed", "2"))
    job = await jobs.get("1")
    assert job is not None and (job.retries, job.error) == (0, "payload is not a JSON object")


async def test_jobs_of_an_unknown_queue_fail_after_a_day(store: Store) -> None:
    """Q10: until then another tracker may know the queue."""

    async def handler(payload: Payload) -> None: ...

    jobs = jobs_of(store)
    await jobs.enqueue("gone")
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "completed", "2"))
        assert await status_of(jobs, "1") == "pending"
    store.clock.now += ABANDONED_SECONDS
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "failed", "1"))


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_job_that_times_out_is_cancelled_before_its_retry(store: Store, stubborn: bool) -> None:
    """Q6: whether its handler raises or swallows the cancellation."""
    under_way, most, runs = 0, 0, 0
    worker: JobWorker

    async def handler(payload: Payload) -> None:
        nonlocal under_way, most, runs
        runs += 1
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await passes(worker, 3)  # its cleanup takes time
            assert await status_of(jobs, "1") == "running"
            if not stubborn:
                raise
        finally:
            under_way -= 1

    jobs = jobs_of(store)
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": Queue(handler, timeout_seconds=0.05, concurrency=3)}) as worker:
        await eventually(has(store, "failed"))
    job = await jobs.get("1")
    assert job is not None and job.error == "timed out after 0.05 s"
    assert (runs, most) == (3, 1)


async def test_a_timeout_error_of_a_handler_is_an_ordinary_error(store: Store) -> None:
    """Q6."""

    async def handler(payload: Payload) -> None:
        raise TimeoutError("no reply")

    jobs = jobs_of(store, max_retries=0)
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "failed"))
    job = await jobs.get("1")
    assert job is not None and job.error == "TimeoutError: no reply"


async def test_many_workers_share_the_slots_of_a_queue(make_store: MakeStore) -> None:
    """Q8: all slots are used, and no more; each job runs once; other queues have their own slots."""
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()
    done: Counter[str] = Counter()

    def handler_of(queue: str) -> Any:
        async def handler(payload: Payload) -> None:
            under_way[queue] += 1
            most[queue] = max(most[queue], under_way[queue])
            await loop_turns(50)
            under_way[queue] -= 1
            done[f"{queue}{payload['n']}"] += 1

        return handler

    queues = {"a": Queue(handler_of("a"), concurrency=5), "b": Queue(handler_of("b"), concurrency=2)}
    stores = [await make_store() for _ in range(5)]
    jobs = jobs_of(stores[0])
    for queue in queues:
        await jobs.enqueue_many(queue, [{"n": number} for number in range(60)])
    async with asyncio.timeout(30):
        tasks = [working(store, jobs_of(store, clock=stores[0].clock), queues) for store in stores]
        workers = [await task.__aenter__() for task in tasks]
        await eventually(lambda: sum(done.values()) == 120 or any(worker.running > 7 for worker in workers))
        assert all(worker.running <= 7 for worker in workers)
        for task in tasks:
            await task.__aexit__(None, None, None)
    assert most == {"a": 5, "b": 2}
    assert set(done.values()) == {1}
    await check_queue_is_sound(stores[0], jobs, "a")


async def test_a_graceful_stop_lets_jobs_finish(store: Store) -> None:
    """Q13: within a few seconds; no other job begins."""
    runs: list[int] = []
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(payload: Payload) -> None:
        runs.append(payload["n"])
        begun.set()
        await go.wait()

    jobs = jobs_of(store)
    await jobs.enqueue_many("q", [{"n": 1}, {"n": 2}])
    async with working(store, jobs, {"q": handler}) as worker:
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go.set)
        await worker.drain()
        assert await status_of(jobs, "1") == "completed"
        assert worker.running == 0
        await passes(worker, 2)
    assert (runs, await status_of(jobs, "2")) == ([1], "pending")


@pytest.mark.parametrize("how", ["drained", "cancelled"])
async def test_a_graceful_stop_returns_unfinished_jobs(store: Store, how: str) -> None:
    """Q13: that is not a failed run, and another worker can claim the job at once."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(payload: Payload) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    jobs = jobs_of(store)
    await jobs.enqueue("q")
    if how == "drained":
        async with working(store, jobs, {"q": handler}) as worker:
            await begun.wait()
            await worker.drain(0.05)
    else:
        worker = JobWorker(jobs, store.connection, {"q": Queue(handler)}, clock=store.clock)
        task = asyncio.Task(worker.run())
        await begun.wait()
        while not task.done():  # as the service does, repeatedly
            task.cancel()
            await asyncio.wait([task], timeout=0.1)
    assert ended.is_set()
    job = await jobs.get("1")
    assert job is not None and (job.status, job.retries) == ("pending", 0)
    await check_queue_is_sound(store, jobs)


async def test_a_stop_during_a_claim_leaves_no_lease(store: Store) -> None:
    """Q13: at any point at which a worker is cancelled."""

    async def handler(payload: Payload) -> None: ...

    jobs = jobs_of(store)
    for number in range(40):
        await jobs.enqueue_many("q", [{"n": [number, each]} for each in range(5)])
        worker = JobWorker(jobs, store.connection, {"q": Queue(handler, concurrency=2)}, clock=store.clock)
        task = asyncio.Task(worker.run())
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (await jobs.sizes("q"))["running"] == 0
    await check_queue_is_sound(store, jobs)


async def test_a_job_claimed_by_another_worker_is_cancelled(store: Store) -> None:
    """Q7, Q8: a worker that loses a lease cancels the job."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(payload: Payload) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    ours = jobs_of(store, lease_seconds=0.6)
    await ours.enqueue("q")
    async with working(store, ours, {"q": handler}) as worker:
        await begun.wait()
        # Claimed by a process whose clock is far ahead.
        theirs = jobs_of(store, clock=lambda: store.clock.now + 100)
        (taken,) = await theirs.claim({"q": (2, 1)})
        await asyncio.wait_for(cancelled.wait(), 20)
        await eventually(lambda: worker.running == 0)
        await passes(worker)
        assert await theirs.extend([taken]) != [None]


async def test_a_disconnected_worker_stops_jobs_before_their_leases_end(store: Store) -> None:
    """Q7, Q8: it cannot extend them, so another worker may claim the jobs."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(payload: Payload) -> None:
        if begun.is_set():
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    jobs = jobs_of(store, lease_seconds=1, clock=time.time)
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": handler}, clock=time.time):
        await begun.wait()
        await store.redis.client_pause(1500)
        store.connection.server.timeout = 0.1
        store.connection.server.close_sockets()
        await asyncio.wait_for(cancelled.wait(), 20)
        store.connection.server.timeout = 5
        await store.connection.until_available()
        await eventually(has(store, "completed"))


async def test_the_next_run_gets_the_cursor(store: Store) -> None:
    """Q14: for a queue that resumes."""
    seen: list[str] = []

    async def handler(payload: Payload, job: Claimed) -> None:
        seen.append(job.cursor)
        assert await jobs.save_cursor(job, f"page {len(seen)}")
        if len(seen) < 3:
            raise ValueError

    jobs = jobs_of(store)
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": Queue(handler, resumes=True)}):
        await eventually(has(store, "completed"))
    assert seen == ["", "page 1", "page 2"]


class ReadClock(Clock):
    """A clock that counts how often it is read."""

    reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return super().__call__()

    async def is_read(self, times: int) -> None:
        """Waits until it has been read so many times more."""
        wanted = self.reads + times
        await eventually(lambda: self.reads >= wanted)


async def test_periodic_jobs_run_once_in_each_slot_on_all_trackers_together(make_store: MakeStore) -> None:
    """Q2: for any number of trackers; one that starts during a slot causes no second run."""
    runs: list[float] = []
    stores = [await make_store() for _ in range(3)]
    clock = ReadClock(stores[0].clock.now)

    async def handler(payload: Payload) -> None:
        runs.append(clock.now)

    async def completed(number: int) -> bool:
        return (await jobs_of(stores[0]).sizes("sweep"))["completed"] == number

    clock.now += 7
    started = clock.now
    sweep = {"sweep": Queue(handler, every=60)}
    for store in stores:
        store.clock = clock
    async with (
        working(stores[0], jobs_of(stores[0]), sweep, clock=clock),
        working(stores[1], jobs_of(stores[1]), sweep, clock=clock),
    ):
        await eventually(lambda: completed(1))
        clock.now += 60
        await eventually(lambda: completed(2))
        async with working(stores[2], jobs_of(stores[2]), sweep, clock=clock):
            await clock.is_read(30)
            clock.now += 50
            await clock.is_read(30)
            assert len(runs) == 2
            clock.now += 10  # the lease of a claim that was on its way begins before: it must not end at once
            await eventually(lambda: completed(3))
            await clock.is_read(30)
    assert runs == [started, started + 60, started + 120]


async def test_finished_jobs_are_purged_by_the_worker(store: Store) -> None:
    """Q11."""

    async def handler(payload: Payload) -> None: ...

    jobs = jobs_of(store, keep_seconds=60)
    await jobs.enqueue("q")
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, "completed"))
    store.clock.now += 60
    async with working(store, jobs, {"q": handler}):
        await eventually(has(store, ""))
