"""Job workers that are killed or suspended during a job, and outages of the store (row Q7)."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

from loadtest.servers import Server
from tests.store.harness import Store, running
from tests.store.jobs.harness import check_queue_is_sound, claim, end, jobs_of, status_of
from tests.waiting import eventually
from tests.workers.jobs import calls, printed, worker_process, working
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import Claimed
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.jobs import Queue

LEASE = 1.5


async def taken_over(jobs: Jobs) -> Claimed:
    """Claims the job as soon as its lease has ended."""
    found: list[Claimed] = []

    async def is_claimed() -> bool:
        found.extend(await claim(jobs, concurrency=1))
        return bool(found)

    await eventually(is_claimed)
    return found[0]


async def test_a_job_of_a_killed_worker_runs_again(store: Store, any_server: Server) -> None:
    """Q7: after SIGKILL the job runs again when its lease has ended; that counts as one run."""
    jobs, ran = jobs_of(store, clock=time.time, lease_seconds=LEASE), asyncio.Event()

    async def handler(payload: dict[str, Any]) -> None:
        ran.set()

    id, _ = await jobs.enqueue("q", {"n": 1})
    with worker_process(any_server.url, store.keys.prefix, LEASE) as process:
        await printed(process, "began")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert await status_of(jobs, id) == "running"
        async with working(store, jobs, {"q": handler}, clock=time.time):
            await asyncio.wait_for(ran.wait(), 20)

            async def completed() -> bool:
                return await status_of(jobs, id) == "completed"

            await eventually(completed)
    job = await jobs.get(id)
    assert job is not None and job.retries == 1
    await check_queue_is_sound(store, jobs)


async def test_a_process_suspended_beyond_its_lease_changes_nothing(store: Store, any_server: Server) -> None:
    """Q7: suspended during a job and continued after its lease. Its result is discarded."""
    jobs = jobs_of(store, clock=time.time, lease_seconds=LEASE)
    id, _ = await jobs.enqueue("q", {"n": 1})
    with worker_process(any_server.url, store.keys.prefix, LEASE) as process:
        await printed(process, "began")
        process.send_signal(signal.SIGSTOP)
        job = await taken_over(jobs_of(store, clock=time.time, lease_seconds=3600))
        assert (job.id, job.retries) == (id, 1)
        await store.redis.set(f"{store.keys.prefix}go", "1")
        process.send_signal(signal.SIGCONT)
        await printed(process, "ended")
        before = await calls(store)

        async def has_written() -> bool:
            """The worker writes results before it claims, so after a few calls they are written."""
            return await calls(store) > before + 5

        await eventually(has_written)
        assert await status_of(jobs, id) == "running"
        assert await end(jobs, job, "fatal", "ours") == "failed"
    found = await jobs.get(id)
    assert found is not None and (found.status, found.error) == ("failed", "ours")


async def test_jobs_continue_after_an_outage_of_the_store(start_server: Callable[..., Server]) -> None:
    """Q7: the store restarts. The result of the job that ran meanwhile is written, and the next ones run."""
    server = start_server("--appendfsync", "always")
    begun, go = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def handler(payload: dict[str, Any]) -> None:
        runs.append(payload["n"])
        begun.set()
        await go.wait()

    async with running(Store(server.url, Keys("t:"), SwarmRules())) as store:
        jobs = jobs_of(store, clock=time.time, lease_seconds=60)
        await jobs.enqueue_many("q", [{"n": 1}, {"n": 2}])

        async def sweep(_: object) -> None:
            """A periodic job."""

        queues = {"q": Queue(handler), "sweep": Queue(sweep, every=3600)}
        async with working(store, jobs, queues, clock=time.time):
            await begun.wait()
            await asyncio.to_thread(server.kill)
            go.set()
            await eventually(lambda: store.connection.unavailable)
            await asyncio.to_thread(server.start)
            await store.connection.until_available()
            await jobs.enqueue("q", {"n": 3})

            async def all_done() -> bool:
                return (await jobs.sizes("q"))["completed"] == 3

            await eventually(all_done)
        assert runs == [1, 2, 3]
        await check_queue_is_sound(store, jobs)


async def test_a_token_reissued_by_an_empty_store_does_not_confuse_jobs(store: Store) -> None:
    """Q7: a server without persistence restarts and reissues tokens. A new job has the token of an old one."""
    jobs, begun, go = jobs_of(store), asyncio.Queue[int](), asyncio.Event()

    async def handler(payload: dict[str, Any]) -> None:
        begun.put_nowait(payload["n"])
        await go.wait()

    async def completed() -> bool:
        return (await jobs.sizes("q"))["completed"] == 2

    async with working(store, jobs, {"q": Queue(handler, concurrency=2)}) as worker:
        await jobs.enqueue("q", {"n": 1})
        assert await asyncio.wait_for(begun.get(), 20) == 1
        await store.redis.delete(*await store.redis.keys(f"{store.keys.prefix}*"))
        await jobs.enqueue("q", {"n": 2})
        assert await asyncio.wait_for(begun.get(), 20) == 2
        assert worker.running == 2
        go.set()
        await jobs.enqueue("q", {"n": 3})
        await eventually(completed)
