"""Job workers for tests, in this process or in a separate one."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from loadtest.servers import ROOT
from tests.store.harness import Store
from tests.waiting import eventually, in_background
from tracker.store.jobs.jobs import Jobs
from tracker.workers.jobs import JobWorker, Queue

Handler = Callable[..., Awaitable[None]]


@asynccontextmanager
async def working(
    store: Store, jobs: Jobs, queues: Mapping[str, Queue | Handler], **options: Any
) -> AsyncIterator[JobWorker]:
    """A running worker. A handler without a Queue has the defaults."""
    specs = {name: queue if isinstance(queue, Queue) else Queue(queue) for name, queue in queues.items()}
    worker = JobWorker(
        jobs, store.connection, specs, **{"clock": store.clock, "poll_seconds": 0.01, "retry_seconds": 0.0, **options}
    )
    async with in_background(worker.run(), store.connection.watch()):
        yield worker


async def passes(worker: JobWorker, number: int = 1) -> None:
    """Waits until the worker has written results and claimed jobs ``number`` more times."""

    for _ in range(number + 1):  # the last turn shows that the one before it is complete
        worker._wake.set()
        await eventually(lambda: not worker._wake.is_set())


@contextmanager
def worker_process(url: str, prefix: str, lease_seconds: float) -> Iterator["subprocess.Popen[str]"]:
    """Runs tests/workers/job_process.py, and kills it at the end."""
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


async def calls(store: Store) -> int:
    """Script calls that the store has run so far."""
    statistics = await store.redis.info("commandstats")
    return sum(int(statistics.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("evalsha", "eval"))


async def printed(process: "subprocess.Popen[str]", word: str) -> None:
    """Checks that the next line which the process prints contains ``word``."""
    assert process.stdout
    async with asyncio.timeout(20):
        assert word in await asyncio.to_thread(process.stdout.readline)
