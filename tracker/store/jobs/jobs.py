"""The job queue: jobs in, runs out under leases, results back. docs/jobs.md explains it.

Every step is one script. What has a clock in it (a delay, a deadline, a lease) is compared with ``clock``, so the
clocks of trackers on one store must agree within a few seconds. A run is at least once: when an answer of the store
is lost, a job that was claimed comes back after its lease, and a job that was enqueued may be enqueued again,
which changes nothing.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import structlog
from redis.exceptions import ResponseError

from tracker.counting import Count
from tracker.errors import ClientError
from tracker.store.connection import Argument, Connection
from tracker.store.job import (
    FIELDS,
    FINISHED,
    MAX_ERROR,
    MOST_PRIORITY,
    STATUSES,
    Claimed,
    Enqueued,
    Job,
    JobLimits,
    Result,
    canonical_json,
    check_queue,
    fingerprint,
    is_queue,
    parse_job,
    whole,
)
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

MAX_BATCH = 500
"""Jobs in one call of a script."""

log = structlog.get_logger("tracker.jobs")


class QueueFull(ClientError):
    """Too many jobs wait in a queue already."""

    def __init__(self) -> None:
        super().__init__("too many jobs wait in this queue")


def _ignore(*names: str, by: int = 1) -> None:
    del names, by


class Jobs:
    """The queues of one prefix. ``clock`` gives epoch seconds.

    ``count`` hears ``jobs.<queue>.<status>`` for each job that gets there, ``observe`` (name, seconds) how long it
    waited, ``jobs.<queue>.wait_seconds``, and how long it ran, ``jobs.<queue>.run_seconds``.
    """

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        limits: JobLimits | None = None,
        *,
        count: Count = _ignore,
        observe: Callable[[str, float], None] = lambda name, value: None,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self.limits = limits or JobLimits()
        self._count = count
        self._observe = observe

    def _now(self) -> int:
        return int(self._clock() * 1000)

    # In

    async def enqueue(self, queue: str, payload: Mapping[str, Any] | None = None, **options: Any) -> Enqueued:
        """Adds one job; takes the options of ``enqueue_many``."""
        return (await self.enqueue_many(queue, [payload or {}], **options))[0]

    async def enqueue_many(
        self,
        queue: str,
        payloads: Sequence[Mapping[str, Any]],
        *,
        priority: int = 0,
        run_after: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
    ) -> list[Enqueued]:
        """Adds jobs, MAX_BATCH of them in a call. The same payload that waits or runs already stays one job, as it is.

        ``run_after`` and ``deadline`` are epoch seconds: not before, and not at all from then on. Raises QueueFull
        when there is no room for all of them; asking again later adds the rest. Raises ValueError for what no job
        can be made of.
        """
        check_queue(queue)
        if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
            raise ValueError(f"priorities go from {-MOST_PRIORITY} to {MOST_PRIORITY}")
        retries = self.limits.max_retries if max_retries is None else max_retries
        texts = [canonical_json(payload) for payload in payloads]
        head = (queue, priority, _milliseconds(run_after), _milliseconds(deadline), retries)
        enqueued: list[Enqueued] = []
        for first in range(0, len(texts), MAX_BATCH):
            argv: list[Argument] = [self._now(), self.limits.most_waiting, *head]
            for text in texts[first : first + MAX_BATCH]:
                argv += (fingerprint(queue, text), text)
            enqueued += self._enqueued(queue, await self._scripts.enqueue(argv))
            if not enqueued[-1].id:
                break
        if not all(job.id for job in enqueued):
            raise QueueFull
        return enqueued

    def _enqueued(self, queue: str, answer: list[Any]) -> list[Enqueued]:
        pairs = zip(answer[::2], answer[1::2], strict=True)
        enqueued = [Enqueued(id.decode(), bool(new)) for id, new in pairs]
        if new := sum(job.new for job in enqueued):
            self._count(f"jobs.{queue}.pending", by=new)
        return enqueued

    async def enqueue_slot(self, queue: str, start: float, seconds: float) -> Enqueued | None:
        """Adds the job of a slot of time that begins at ``start`` (epoch s): once, whoever else does so too."""
        check_queue(queue)
        argv: list[Argument] = [
            self._now(),
            self.limits.most_waiting,
            queue,
            int(start * 1000),
            int(seconds * 1000),
        ]
        text = canonical_json({})
        answer = await self._scripts.enqueue_slot(
            [*argv, self.limits.max_retries, fingerprint(queue, text), text]
        )
        (enqueued,) = self._enqueued(queue, answer)
        return enqueued if enqueued.id else None

    # Out, and back

    async def claim(self, wants: Mapping[str, tuple[int, int]]) -> list[Claimed]:
        """Takes jobs to run. By queue: how many of its jobs may run at once on all workers together, and how many to take.

        Whoever calls this also does what time brings about in these queues; nothing else needs to.
        """
        now = self._now()
        until = now + int(self.limits.lease_seconds * 1000)
        argv: list[Argument] = [now, until, self.limits.most_kept]
        for queue, (concurrency, most) in wants.items():
            argv += (queue, concurrency, min(most, MAX_BATCH))
        jobs, changes, broken = await self._scripts.claim(argv)
        if broken:
            log.error("queues have keys of a wrong type: somebody else wrote them", queues=broken)
        for queue, status in zip(changes[::2], changes[1::2], strict=True):
            self._count(f"jobs.{queue.decode()}.{status.decode()}")
        return [self._claimed(row, now, until) for row in jobs]

    def _claimed(self, row: list[bytes], now: int, until: int) -> Claimed:
        queue, id, token, payload, retries, run_after, cursor = (v.decode("utf-8", "replace") for v in row)
        waiting_since = whole(run_after) or now
        self._count(f"jobs.{queue}.running")
        self._observe(f"jobs.{queue}.wait_seconds", max(0, now - waiting_since) / 1000)
        return Claimed(queue, id, token, payload, whole(retries), waiting_since / 1000, cursor, until / 1000)

    async def extend(self, jobs: Sequence[Claimed]) -> list[float | None]:
        """For each job until when (epoch s) it is held now; None when somebody else has it."""
        until = self._now() + int(self.limits.lease_seconds * 1000)
        argv: list[Argument] = [until]
        for job in jobs:
            argv += (job.queue, job.id, job.token)
        return [until / 1000 if mine else None for mine in await self._scripts.extend(argv)]

    async def finish(self, results: Sequence[Result]) -> list[str]:
        """Writes how runs ended: the status of each job now, empty where somebody else has it and the result is void."""
        now = self._now()
        argv: list[Argument] = [now, self.limits.most_kept]
        for result in results:
            job, again = result.job, now + int(result.delay * 1000)
            argv += (job.queue, job.id, job.token, result.outcome, result.error[:MAX_ERROR], again)
        statuses = [status.decode() for status in await self._scripts.finish(argv)]
        for result, status in zip(results, statuses, strict=True):
            if status == "wrong":
                log.error("a job's keys are of a wrong type: somebody else wrote them", job=result.job.id)
            elif status:
                self._count(f"jobs.{result.job.queue}.{status}")
                self._observe(f"jobs.{result.job.queue}.run_seconds", result.run_seconds)
        return statuses

    async def save_cursor(self, job: Claimed, cursor: str) -> bool:
        """Keeps how far a running job has come; False when somebody else has it now."""
        return bool(await self._scripts.save_cursor([job.queue, job.id, job.token, cursor]))

    async def abandon(self, queue: str, seconds: float) -> int:
        """Fails what could have run for ``seconds`` in a queue that nobody works on; the answer is how much changed."""
        now = self._now()
        ripe = now - int(seconds * 1000)
        changes = await self._scripts.abandon([now, self.limits.most_kept, queue, ripe, MAX_BATCH])
        for status in changes:
            self._count(f"jobs.{queue}.{status.decode()}")
        return len(changes)

    # To look at

    async def queues(self) -> list[str]:
        """Every queue that ever had a job; what cannot be a queue's name somebody else wrote."""
        names = await self._connection.command("SMEMBERS", self._keys.queues())
        return sorted(name for raw in names if is_queue(name := raw.decode("utf-8", "replace")))

    async def sizes(self, queue: str) -> dict[str, int]:
        """How many jobs there are of each status."""
        commands = (("ZCARD", self._keys.queue_jobs(queue, status)) for status in STATUSES)
        counts = await self._connection.pipeline(*commands)
        return {status: _size(size) for status, size in zip(STATUSES, counts, strict=True)}

    async def waiting(self, queue: str) -> int:
        """How many jobs of a queue wait."""
        sizes = await self.sizes(queue)
        return sizes["pending"] + sizes["retry"]

    async def get(self, id: str) -> Job | None:
        return parse_job(await self._connection.command("HMGET", self._keys.job(id), *FIELDS))

    async def page(self, queue: str, status: str, offset: int, count: int) -> list[Job]:
        """Jobs of one status: finished ones from the newest on, those that wait by when they may run, running ones by
        the end of their lease. Where the times are equal, in no order that means anything."""
        order = ("REV",) if status in FINISHED else ()
        ids = await self._connection.command(
            "ZRANGE", self._keys.queue_jobs(queue, status), offset, offset + count - 1, *order
        )
        rows = await self._connection.pipeline(
            *(("HMGET", self._keys.job(id.decode()), *FIELDS) for id in ids)
        )
        jobs = (parse_job(row) for row in rows if not isinstance(row, Exception))
        return [job for job in jobs if job is not None]

    async def pages(self, queue: str, status: str, size: int) -> AsyncIterator[list[Job]]:
        """All of them, a page at a time. What moves meanwhile may be missed, or come twice."""
        total = (await self.sizes(queue))[status]
        for offset in range(0, total, size):
            yield await self.page(queue, status, offset, size)

    # By hand, and by age

    async def retry(self, id: str) -> None:
        """Lets a failed job run again with all of its retries, or one that waits to retry at once; raises ClientError."""
        answer = (await self._scripts.retry([self._now(), id])).decode()
        if answer == "unknown":
            raise ClientError("unknown job")
        if answer.endswith(" already"):
            raise ClientError(f"is {answer}")
        if answer != "pending":
            raise ClientError("the same job waits or runs already")
        queue = await self._connection.command("HGET", self._keys.job(id), "queue")
        self._count(f"jobs.{(queue or b'').decode('ascii', 'replace')}.pending")

    async def purge(self, queue: str, status: str, before: float | None = None) -> int:
        """Deletes jobs of one status, those that finished before ``before`` (epoch s) or all; how many it were."""
        if status not in STATUSES or status == "running":
            raise ClientError("jobs that run cannot be purged")
        limit = "+inf" if before is None else int(before * 1000)
        total = 0
        while True:
            deleted = int(await self._scripts.purge([check_queue(queue), status, MAX_BATCH, limit]))
            total += deleted
            if deleted < MAX_BATCH:
                return total

    async def expire(self) -> int:
        """Deletes finished jobs whose time to be kept is over."""
        before = self._clock() - self.limits.keep_seconds
        total = 0
        for queue in await self.queues():
            try:
                for status in FINISHED:
                    total += await self.purge(queue, status, before)
            except ResponseError as error:  # no reason to leave the other queues out
                log.error("finished jobs were not deleted", queue=queue, error=str(error))
        return total


def _milliseconds(seconds: float | None) -> str:
    """Rounded up: nothing is early."""
    return "" if seconds is None else str(math.ceil(seconds * 1000))


def _size(answer: Any) -> int:
    return 0 if isinstance(answer, Exception) else int(answer)
