"""Job workers that die or sleep in the middle of a job, and a store that goes away (row Q7)."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.servers import Server
from tests.store.harness import Store, running
from tests.store.jobs import check_queue_is_sound, claim, end, jobs_of, status_of
from tests.workers.jobs import heard, until, worker_process, working
from tracker.store.job import Claimed
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.workers.jobs import Queue

LEASE = 1.5


async def taken_over(jobs: Jobs) -> Claimed:
    """The job, as soon as its lease has ended."""
    async with asyncio.timeout(20):
        while not (found := await claim(jobs, concurrency=1)):
            await asyncio.sleep(0.02)
    return found[0]


async def test_a_worker_killed_in_the_middle_of_a_job_loses_nothing(store: Store, any_server: Server) -> None:
    """Q7: kill -9 of the process; the job runs again after its lease, which counts as one run."""
    jobs, ran = jobs_of(store, clock=time.time, lease_seconds=LEASE), asyncio.Event()

    async def handler(payload: dict[str, Any]) -> None:
        ran.set()

    id, _ = await jobs.enqueue("q", {"n": 1})
    with worker_process(any_server.url, store.keys.prefix, LEASE) as process:
        await heard(process, "began")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert await status_of(jobs, id) == "running"
        async with working(store, jobs, {"q": handler}, clock=time.time):
            await asyncio.wait_for(ran.wait(), 20)

            async def completed() -> bool:
                return await status_of(jobs, id) == "completed"

            await until(completed)
    job = await jobs.get(id)
    assert job is not None and job.retries == 1
    await check_queue_is_sound(store, jobs)


async def test_a_process_that_slept_too_long_changes_nothing(store: Store, any_server: Server) -> None:
    """Q7: stopped in the middle of a job and woken after its lease; its result is void."""
    jobs = jobs_of(store, clock=time.time, lease_seconds=LEASE)
    id, _ = await jobs.enqueue("q", {"n": 1})
    with worker_process(any_server.url, store.keys.prefix, LEASE) as process:
        await heard(process, "began")
        process.send_signal(signal.SIGSTOP)
        job = await taken_over(jobs_of(store, clock=time.time, lease_seconds=3600))
        assert (job.id, job.retries) == (id, 1)
        await store.redis.set(f"{store.keys.prefix}go", "1")
        process.send_signal(signal.SIGCONT)
        await heard(process, "ended")
        await asyncio.sleep(0.2)
        assert await status_of(jobs, id) == "running"
        assert await end(jobs, job, "fatal", "ours") == "failed"
    found = await jobs.get(id)
    assert found is not None and (found.status, found.error) == ("failed", "ours")


async def test_work_goes_on_when_the_store_was_away(start_server: Callable[..., Server]) -> None:
    """Q7: a store that restarts in the middle: the job that ran meanwhile is written, the next ones run."""
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
        async with working(store, jobs, {"q": handler}, clock=time.time, periodic={"sweep": 3600}):
            await begun.wait()
            await asyncio.to_thread(server.kill)
            go.set()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            await store.connection.until_back()
            await jobs.enqueue("q", {"n": 3})

            async def all_done() -> bool:
                return (await jobs.sizes("q"))["completed"] == 3

            await until(all_done)
        assert runs == [1, 2, 3]
        await check_queue_is_sound(store, jobs)


async def test_a_store_that_lost_everything_gives_out_a_token_again(store: Store) -> None:
    """Q10: a server without persistence restarted in the middle; its tokens begin anew, and a new job has that of an old."""
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
        await until(completed)
