"""The job queue: enqueues jobs, leases them to workers, and stores their results. docs/jobs.md explains it.

Every step is one script. Delays, deadlines and leases are compared with ``clock``, so the clocks of all trackers on
one store must agree within a few seconds. Jobs run at least once. If a store reply is lost, a claimed job can be
claimed again after its lease, and a caller can safely enqueue the same job again.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from tracker.errors import ClientError, Conflict, NotFound
from tracker.store.client.pipe import Argument, flattened
from tracker.store.jobs.records import (
    FIELDS,
    FINISHED,
    MAX_ERROR,
    MAX_PRIORITY,
    STATUSES,
    Claimed,
    Enqueued,
    Job,
    JobLimits,
    QueueLimits,
    Result,
    canonical_json,
    check_queue,
    fingerprint,
    is_queue,
    parse_job,
)
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.record import fields_of
from tracker.store.sharding.shards import Part, Shard, in_parts
from tracker.store.stats.counters import Count
from tracker.system.logger import Logger

MAX_BATCH = 500
"""Max jobs in one script call."""

log = Logger("tracker.jobs")


class QueueFull(Conflict):
    def __init__(self) -> None:
        super().__init__("too many jobs wait in this queue")


class Jobs(Part):
    """The queues under one key prefix. ``clock`` returns epoch seconds. ``count`` receives ``jobs.<queue>.<status>``
    for each job that enters the status. ``observe`` receives (name, seconds): ``jobs.<queue>.wait_seconds`` for the
    waiting time, ``jobs.<queue>.run_seconds`` for the run time."""

    def __init__(
        self,
        shard: Shard,
        clock: Callable[[], float],
        limits: JobLimits | None = None,
        *,
        count: Count = lambda *names, by=1: None,
        observe: Callable[[str, float], None] = lambda name, value: None,
    ) -> None:
        super().__init__(shard, clock)
        self.limits = limits or JobLimits()
        self._count = count
        self._observe = observe

    # Enqueue

    async def enqueue(self, queue: str, payload: Mapping[str, Any] | None = None, **options: Any) -> Enqueued:
        """Adds one job, with the options and errors of ``enqueue_many``."""
        return (await self.enqueue_many(queue, [payload or {}], **options))[0]

    async def enqueue_many(
        self,
        queue: str,
        payloads: Sequence[Mapping[str, Any]],
        *,
        priority: int | None = None,
        run_after: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
    ) -> list[Enqueued]:
        """Adds jobs, MAX_BATCH per script call. A job with the same payload that waits or runs stays unchanged. Without
        ``priority``, jobs have that of the queue. ``run_after`` and ``deadline`` are epoch seconds: a job runs neither
        before ``run_after`` nor from ``deadline`` on. Raises QueueFull if not all jobs fit into the queue; a later call
        adds the rest. Raises ValueError for an invalid queue name, priority or payload."""
        check_queue(queue)
        if priority is not None and not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
            raise ValueError(f"a priority is a number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
        retries = self.limits.max_retries if max_retries is None else max_retries
        texts = [canonical_json(payload) for payload in payloads]
        head = (queue, *self._priority(queue, priority), _milliseconds(run_after), _milliseconds(deadline), retries)
        enqueued: list[Enqueued] = []
        for some in in_parts(texts, MAX_BATCH):
            argv: list[Argument] = [self._now_ms(), self.limits.max_waiting, *head]
            for text in some:
                argv += (fingerprint(queue, text), text)
            enqueued += self._enqueued(queue, await self._scripts.enqueue(argv))
            if not enqueued[-1].id:
                break
        if not all(job.id for job in enqueued):
            raise QueueFull
        return enqueued

    def _priority(self, queue: str, priority: int | None = None) -> tuple[int, int]:
        """The priority of new jobs, and 1 unless the store may have another for the queue."""
        return (self.limits.priorities.get(queue, 0), 0) if priority is None else (priority, 1)

    def _enqueued(self, queue: str, answer: list[Any]) -> list[Enqueued]:
        pairs = zip(answer[::2], answer[1::2], strict=True)
        enqueued = [Enqueued(id.decode(), bool(new)) for id, new in pairs]
        if new := sum(job.new for job in enqueued):
            self._count(f"jobs.{queue}.pending", by=new)
        return enqueued

    async def enqueue_slot(self, queue: str, start: float, seconds: float) -> Enqueued | None:
        """Adds the job of the time slot from ``start`` (epoch s) on, ``seconds`` long. A slot gets only one job, even
        if several trackers call this. None if it has its job already, or if the queue is full."""
        check_queue(queue)
        argv: list[Argument] = [self._now_ms(), self.limits.max_waiting, queue, *self._priority(queue)]
        argv += (int(start * 1000), int(seconds * 1000), self.limits.max_retries)
        text = canonical_json({})
        answer = await self._scripts.enqueue_slot([*argv, fingerprint(queue, text), text])
        (enqueued,) = self._enqueued(queue, answer)
        return enqueued if enqueued.id else None

    # Claim and finish

    async def claim(self, wants: Mapping[str, tuple[int, int]]) -> list[Claimed]:
        """Claims jobs to run. ``wants`` maps a queue to (max running jobs on all workers, how many of these the caller
        has not running); what the store has for the queue goes before the first. The call also processes the ended
        leases, delays and deadlines of these queues, so no other job needs to."""
        now = self._now_ms()
        until = now + int(self.limits.lease_seconds * 1000)
        argv: list[Argument] = [now, until, self.limits.max_kept]
        for queue, (concurrency, max_jobs) in wants.items():
            argv += (queue, concurrency, max_jobs)
        jobs, changes, broken = await self._scripts.claim(argv)
        if broken:
            log.error("queues have keys of a wrong type, which no tracker wrote", queues=broken)
        for queue, status in zip(changes[::2], changes[1::2], strict=True):
            self._count(f"jobs.{queue.decode()}.{status.decode()}")
        return [self._claimed(row, now, until) for row in jobs]

    def _claimed(self, row: list[bytes], now: int, until: int) -> Claimed:
        queue, id, token, payload, cursor = (row[place].decode("utf-8", "replace") for place in (0, 1, 2, 3, 6))
        retries, waiting_since = whole(row[4]), whole(row[5]) or now
        self._count(f"jobs.{queue}.running")
        self._observe(f"jobs.{queue}.wait_seconds", max(0, now - waiting_since) / 1000)
        return Claimed(queue, id, token, payload, retries, waiting_since / 1000, cursor, until / 1000)

    async def extend(self, jobs: Sequence[Claimed]) -> list[float | None]:
        """Extends leases. Returns the new end (epoch s) of each lease; None if the lease was lost."""
        until = self._now_ms() + int(self.limits.lease_seconds * 1000)
        argv: list[Argument] = [until]
        for job in jobs:
            argv += (job.queue, job.id, job.token)
        return [until / 1000 if mine else None for mine in await self._scripts.extend(argv)]

    async def finish(self, results: Sequence[Result]) -> list[str]:
        """Stores the results of runs. Returns the new status of each job; empty if its lease was lost, which makes
        the result void."""
        now = self._now_ms()
        argv: list[Argument] = [now, self.limits.max_kept]
        for result in results:
            job, retry_at = result.job, now + int(result.delay * 1000)
            argv += (job.queue, job.id, job.token, result.outcome, result.error[:MAX_ERROR], retry_at)
        statuses = [status.decode() for status in await self._scripts.finish(argv)]
        for result, status in zip(results, statuses, strict=True):
            if status == "wrong":
                log.error("a job has keys of a wrong type, which no tracker wrote", job=result.job.id)
            elif status:
                self._count(f"jobs.{result.job.queue}.{status}")
                self._observe(f"jobs.{result.job.queue}.run_seconds", result.run_seconds)
        return statuses

    async def save_cursor(self, job: Claimed, cursor: str) -> bool:
        """Stores the progress of a running job. False if its lease was lost."""
        return bool(await self._scripts.save_cursor([job.queue, job.id, job.token, cursor]))

    async def abandon(self, queue: str, seconds: float) -> int:
        """Fails the jobs that were due for ``seconds`` in a queue without a worker. Returns how many jobs changed."""
        now = self._now_ms()
        due_before = now - int(seconds * 1000)
        changes = await self._scripts.abandon([now, self.limits.max_kept, queue, due_before, MAX_BATCH])
        for status in changes:
            self._count(f"jobs.{queue}.{status.decode()}")
        return len(changes)

    # Read

    async def queues(self) -> list[str]:
        """Returns every queue that ever had a job. Leaves out invalid names, which no tracker wrote."""
        names = await self._connection.command("SMEMBERS", self._keys.queues())
        return sorted(name for raw in names if is_queue(name := raw.decode("utf-8", "replace")))

    async def limits_of(self, queue: str) -> QueueLimits:
        key, known = self._keys.queue_limits(queue), fields_of(QueueLimits)
        found = await self._connection.command("HMGET", key, *known)
        return QueueLimits(*(each.read(value) for each, value in zip(known.values(), found, strict=True)))

    async def set_limits(self, queue: str, given: Mapping[str, Any]) -> QueueLimits:
        """Replaces what is set for a queue; a field that is not given is unset. Raises ClientError if one is
        invalid, and ValueError for an invalid queue name."""
        row = {name: each.stored(given.get(name, "")) for name, each in fields_of(QueueLimits).items()}
        await self._connection.command("HSET", self._keys.queue_limits(check_queue(queue)), *flattened(row))
        return await self.limits_of(queue)

    async def sizes(self, queue: str) -> dict[str, int]:
        """Returns the number of jobs of each status. A key of the wrong type counts as 0."""
        commands = (("ZCARD", self._keys.queue_jobs(queue, status)) for status in STATUSES)
        counts = await self._connection.pipeline(*commands)
        return {status: size if isinstance(size, int) else 0 for status, size in zip(STATUSES, counts, strict=True)}

    async def waiting(self, queue: str) -> int:
        sizes = await self.sizes(queue)
        return sizes["pending"] + sizes["retry"]

    async def get(self, id: str) -> Job | None:
        return parse_job(await self._connection.command("HMGET", self._keys.job(id), *FIELDS))

    async def page(self, queue: str, status: str, offset: int, count: int) -> list[Job]:
        """Returns ``count`` jobs of one status from ``offset`` on. Finished jobs are ordered newest first, waiting jobs
        by the time they may run, running jobs by the end of their lease. Jobs with equal times are in an arbitrary
        order."""
        order = ("REV",) if status in FINISHED else ()
        ids = await self._connection.command(
            "ZRANGE", self._keys.queue_jobs(queue, status), offset, offset + count - 1, *order
        )
        rows = await self._connection.pipeline(*(("HMGET", self._keys.job(id.decode()), *FIELDS) for id in ids))
        jobs = (parse_job(row) for row in rows if not isinstance(row, Exception))
        return [job for job in jobs if job is not None]

    async def pages(self, queue: str, status: str, size: int) -> AsyncIterator[list[Job]]:
        """Yields all jobs of one status in pages. A job that moves meanwhile may be missing or appear twice."""
        total = (await self.sizes(queue))[status]
        for offset in range(0, total, size):
            yield await self.page(queue, status, offset, size)

    # Retry and delete

    async def retry(self, id: str) -> None:
        """Queues a failed job again with all its retries, or a job that waits for a retry at once. Raises NotFound if
        the job is unknown, Conflict if it has another status or the same job waits or runs already."""
        answer = (await self._scripts.retry([self._now_ms(), id])).decode()
        if answer == "unknown":
            raise NotFound("unknown job")
        if answer.endswith(" already"):
            raise Conflict(f"is {answer}")
        if answer != "pending":
            raise Conflict("the same job waits or runs already")
        queue = await self._connection.command("HGET", self._keys.job(id), "queue")
        self._count(f"jobs.{(queue or b'').decode('ascii', 'replace')}.pending")

    async def purge(self, queue: str, status: str, before: float | None = None) -> int:
        """Deletes the jobs of one status. Returns how many. ``before`` (epoch s): only jobs that finished by then, or
        waiting ones that may run by then. Raises ClientError for running jobs and for an unknown status."""
        if status not in STATUSES or status == "running":
            raise ClientError("running jobs cannot be purged")
        limit = "+inf" if before is None else int(before * 1000)
        total = 0
        while True:
            deleted = int(await self._scripts.purge([check_queue(queue), status, MAX_BATCH, limit]))
            total += deleted
            if deleted < MAX_BATCH:
                return total

    async def expire(self) -> int:
        """Deletes finished jobs after ``keep_seconds``. Returns how many."""
        before = self._clock() - self.limits.keep_seconds
        total = 0
        for queue in await self.queues():
            try:
                for status in FINISHED:
                    total += await self.purge(queue, status, before)
            except ResponseError as error:  # skip this queue only
                log.error("cannot delete finished jobs", queue=queue, error=str(error))
        return total


def _milliseconds(seconds: float | None) -> str:
    """Converts seconds to milliseconds, rounded up so that no job is early."""
    return "" if seconds is None else str(math.ceil(seconds * 1000))
