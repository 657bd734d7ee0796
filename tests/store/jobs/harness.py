"""Queues under test: Jobs on a store whose clock the test moves, and their counted events."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.store.harness import Store
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import Claimed, JobLimits, Outcome, Result


@dataclass
class Metrics:
    counts: Counter[str] = field(default_factory=Counter)
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def count(self, *names: str, by: int = 1) -> None:
        self.counts.update(dict.fromkeys(names, by))

    def follow(self, store: Store) -> "Metrics":
        """Also gets what the process counts in ``store`` from now on. Returns itself."""
        count = store.counters.count

        def count_twice(*names: str, by: int = 1) -> None:
            self.count(*names, by=by)
            count(*names, by=by)

        store.counters.count = count_twice  # type: ignore[method-assign,assignment]
        return self

    def observe(self, name: str, value: float) -> None:
        self.values[name].append(value)


def jobs_of(
    store: Store, metrics: Metrics | None = None, clock: Callable[[], float] | None = None, **limits: Any
) -> Jobs:
    """The queues of ``store`` as one process sees them."""
    metrics = metrics or Metrics()
    return Jobs(
        store.shards.main, clock or store.clock, JobLimits(**limits), count=metrics.count, observe=metrics.observe
    )


def number_of(token: str) -> int:
    """The first part of a fencing token, which increases."""
    return int(token.partition("-")[0])


async def claim(jobs: Jobs, queue: str = "q", limit: int = 1, concurrency: int = 1000) -> list[Claimed]:
    return await jobs.claim({queue: (concurrency, limit)})


async def claim_one(jobs: Jobs, queue: str = "q") -> Claimed:
    (job,) = await claim(jobs, queue)
    return job


async def end(jobs: Jobs, job: Claimed, outcome: Outcome = "completed", error: str = "", delay: float = 0) -> str:
    """Ends the job's run this way; returns the status of the job afterwards."""
    (status,) = await jobs.finish([Result(job, outcome, error, delay)])
    return status


async def status_of(jobs: Jobs, id: str) -> str:
    job = await jobs.get(id)
    return job.status if job else ""


async def check_queue_is_sound(store: Store, jobs: Jobs, queue: str = "q") -> None:
    """Every job is in the index of its status only, and in the related sets."""
    redis, keys = store.redis, store.keys
    waiting: set[bytes] = set()
    for status in ("pending", "running", "retry", "completed", "failed"):
        ids = set(await redis.zrange(keys.queue_jobs(queue, status), 0, -1))
        for id in ids:
            assert await status_of(jobs, id.decode()) == status
        if status in ("pending", "retry"):
            waiting |= ids
        if status == "running":
            assert set(await redis.hkeys(f"{keys.prefix}q:{queue}:running:tokens")) == ids
    ready = set(await redis.zrange(f"{keys.prefix}q:{queue}:ready", 0, -1))
    delayed = set(await redis.zrange(f"{keys.prefix}q:{queue}:delayed", 0, -1))
    assert ready | delayed == waiting
    assert not ready & delayed
    assert set(await redis.zrange(f"{keys.prefix}q:{queue}:deadlines", 0, -1)) <= waiting
    sizes = await jobs.sizes(queue)
    unfinished = sizes["pending"] + sizes["running"] + sizes["retry"]
    assert await redis.hlen(f"{keys.prefix}q:{queue}:fingerprints") == unfinished


async def some_jobs(store: Store) -> None:
    """Writes every key of the queues."""
    jobs = jobs_of(store)
    now = store.clock.now
    ends: tuple[tuple[Outcome, float], ...] = (("completed", 0), ("fatal", 0), ("failed", 60))
    for number, (outcome, delay) in enumerate(ends):
        await jobs.enqueue("q", {"n": number})
        await end(jobs, await claim_one(jobs), outcome, "no", delay)
    await jobs.enqueue("q", {"n": 3})
    await claim_one(jobs)
    await jobs.enqueue("q", {"n": 4}, deadline=now + 60)
    await jobs.enqueue("q", {"n": 5}, run_after=now + 60)
    await jobs.enqueue_slot("sweep", now, 60)
    await jobs.set_limits("sweep", {"concurrency": 2})
