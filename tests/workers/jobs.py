"""Job workers under test: on a store, in this process or in one of their own."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from tests.servers import ROOT
from tests.store.harness import Store
from tracker.store.jobs import Jobs
from tracker.workers.jobs import JobWorker, Queue

Handler = Callable[..., Awaitable[None]]


@asynccontextmanager
async def working(
    store: Store, jobs: Jobs, queues: Mapping[str, Queue | Handler], **options: Any
) -> AsyncIterator[JobWorker]:
    """A worker at work; a bare handler is a queue with the defaults."""
    specs = {name: queue if isinstance(queue, Queue) else Queue(queue) for name, queue in queues.items()}
    worker = JobWorker(
        jobs,
        store.connection,
        specs,
        **{"clock": store.clock, "poll_seconds": 0.01, "retry_seconds": 0.0, **options},
    )
    tasks = [asyncio.Task(worker.run()), asyncio.Task(store.connection.watch())]
    try:
        yield worker
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.005)


@contextmanager
def worker_process(url: str, prefix: str, lease_seconds: float) -> Iterator["subprocess.Popen[str]"]:
    """tests/workers/job_process.py, killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.job_process", url, prefix, str(lease_seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


async def heard(process: "subprocess.Popen[str]", word: str) -> None:
    """The next line the process prints begins with ``word``."""
    assert process.stdout
    async with asyncio.timeout(20):
        assert (await asyncio.to_thread(process.stdout.readline)).startswith(word)
