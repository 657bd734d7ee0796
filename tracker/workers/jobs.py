"""Runs the jobs of the queues: claims them, extends their leases, and writes their results.

One loop calls the store: it writes the results so far, claims jobs for the free slots, and waits until a job ends or
half a second has passed. Results that arrive during a call are written together by the next one.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from redis.exceptions import RedisError, ResponseError

from tracker.errors import Postponed, StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.jobs.jobs import MAX_BATCH, Jobs
from tracker.store.jobs.records import Claimed, Outcome, Result
from tracker.store.schema.lenient_numbers import json_object
from tracker.system.logger import Logger
from tracker.workers.loop import forever, wait_for

POLL_SECONDS = 0.5
STOP_SECONDS = 3.0
ABANDONED_SECONDS = 86_400.0
"""How long a job of an unknown queue waits before it fails: another tracker may know the queue."""
_HOUSEKEEPING_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 10.0
_MAX_RETRY_SECONDS = 3600.0
_LAST_WRITE_SECONDS = 1.0
_CANCEL_AGAIN_SECONDS = 10.0

CancelReason = Literal["timeout", "lost", "stopping"]

log = Logger("tracker.jobs")


@dataclass(frozen=True, slots=True)
class Queue:
    """How to run the jobs of a queue. ``handler(payload)`` runs one job, and raises if it fails. Where ``resumes`` is
    set, it is ``handler(payload, job)``, and ``job.cursor`` is the cursor that an earlier run saved by
    Jobs.save_cursor. A handler may be cancelled and run again. It raises Postponed for a job that cannot run yet."""

    handler: Callable[..., Awaitable[None]]
    concurrency: int = 1
    """Concurrent jobs, over all trackers on the store."""
    timeout_seconds: float = 1800.0
    resumes: bool = False
    every: float = 0.0
    """Enqueues a job of it every so many seconds; 0: never."""


@dataclass(eq=False)
class _Run:
    """A running job. Do not key by its token: a store that lost data may issue the same token again."""

    job: Claimed
    lease_until: float
    cancel_reason: CancelReason | None = None
    postponed_seconds: float | None = None
    task: asyncio.Task[None] | None = None
    _cancelled_at: float = 0.0

    def cancel(self, reason: CancelReason) -> None:
        """Cancels the handler; again if it still runs 10 s after the last call. The first reason is kept."""
        now = asyncio.get_running_loop().time()
        if self.cancel_reason is not None:
            if now - self._cancelled_at < _CANCEL_AGAIN_SECONDS:
                return
            log.warning("cancelled job still running", queue=self.job.queue, job=self.job.id)
        self.cancel_reason, self._cancelled_at = self.cancel_reason or reason, now
        if self.task is not None:
            self.task.cancel()


@dataclass(eq=False)
class JobWorker:
    """Runs the jobs of ``queues``. Enqueues periodic ones once per slot of so many seconds (epoch // seconds).
    ``clock`` gives epoch seconds. To stop gracefully, await ``drain`` and then cancel ``run``."""

    jobs: Jobs
    connection: Connection
    queues: Mapping[str, Queue]
    _: KW_ONLY
    clock: Callable[[], float]
    poll_seconds: float = POLL_SECONDS
    retry_seconds: float = _FIRST_RETRY_SECONDS

    def __post_init__(self) -> None:
        self._periodic = {name: queue.every for name, queue in self.queues.items() if queue.every}
        self._tick_seconds = self.jobs.limits.lease_seconds / 6
        self._runs: set[_Run] = set()
        self._results: list[Result] = []
        self._slots: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._calling = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()
        self._draining = False

    @property
    def running(self) -> int:
        """The number of jobs running in this process."""
        return len(self._runs)

    async def run(self) -> None:
        """Runs until cancelled; survives errors of the store. When cancelled, it stops as ``drain`` does."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for step, every in (
                    (self._serve, 0.0),
                    (self._extend_leases, 0.0),
                    (self._enqueue_periodic, min(1.0, self.poll_seconds)),
                    (self._clean_up, _HOUSEKEEPING_SECONDS),
                ):
                    failure, connection = "job queue error", self.connection
                    tasks.create_task(forever(step, every, failure, error_seconds=1.0, connection=connection))
                try:
                    await asyncio.Event().wait()  # so that a cancellation does not interrupt a claim
                except asyncio.CancelledError:
                    await self.drain()
                    raise
        finally:
            with suppress(StoreUnavailable, RedisError, TimeoutError):
                async with asyncio.timeout(_LAST_WRITE_SECONDS):
                    await self._write_results()

    async def drain(self, seconds: float = STOP_SECONDS) -> None:
        """Stops claiming. Jobs that do not end within ``seconds`` are cancelled and returned; that is not a failed
        run."""
        self._draining = True
        async with self._calling:  # after a claim that is in progress
            tasks = self._running_tasks()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for run in list(self._runs):
            run.cancel("stopping")
        if tasks := self._running_tasks():
            await asyncio.wait(tasks, timeout=seconds)
        with suppress(StoreUnavailable, RedisError, TimeoutError):
            async with asyncio.timeout(_LAST_WRITE_SECONDS), self._calling:
                await self._write_results()

    def _running_tasks(self) -> set[asyncio.Task[None]]:
        return {run.task for run in self._runs if run.task is not None}

    # Claiming and writing

    async def _serve(self) -> None:
        async with self._calling:
            await self._write_results()
            busy = Counter(run.job.queue for run in self._runs)
            wants = {name: (queue.concurrency, queue.concurrency - busy[name]) for name, queue in self.queues.items()}
            for job in await self.jobs.claim(wants) if not self._draining else ():
                run = _Run(job, job.lease_until)
                self._runs.add(run)
                run.task = self._tasks.create_task(self._work(run), name=f"job {job.queue} {job.id}")
        await wait_for(self._wake, self.poll_seconds)
        self._wake.clear()

    async def _write_results(self) -> None:
        """Writes the results. After an error they are written again; a second write has no effect."""
        while batch := self._results[:MAX_BATCH]:
            statuses = await self.jobs.finish(batch)
            del self._results[: len(batch)]
            for result, status in zip(batch, statuses, strict=True):
                if not status and result.outcome != "returned":
                    log.warning("job result discarded: the lease was lost", queue=result.job.queue, job=result.job.id)

    # One job

    async def _work(self, run: _Run) -> None:
        loop = asyncio.get_running_loop()
        queue, began = self.queues[run.job.queue], loop.time()
        alarm = loop.call_later(queue.timeout_seconds, run.cancel, "timeout")
        outcome: Outcome = "returned"
        error = ""
        try:
            outcome, error = await self._attempt(run, queue)
        finally:
            alarm.cancel()
            self._runs.remove(run)
            delay = run.postponed_seconds or self._backoff_seconds(run.job.retries)
            self._results.append(Result(run.job, outcome, error, delay, loop.time() - began))
            self._wake.set()
        if error:
            log.warning("job failed", queue=run.job.queue, job=run.job.id, error=error)

    async def _attempt(self, run: _Run, queue: Queue) -> tuple[Outcome, str]:
        payload = json_object(run.job.payload)
        if payload is None:
            return "fatal", "payload is not a JSON object"
        error = ""
        try:
            await (queue.handler(payload, run.job) if queue.resumes else queue.handler(payload))
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if run.cancel_reason is None and task is not None and task.cancelling():
                raise  # the worker itself is cancelled
            error = _describe(cancelled)
        except Postponed as later:
            run.postponed_seconds = later.seconds
        except BaseException as raised:  # noqa: BLE001  # any error of a handler fails only its job
            error = _describe(raised)
        if run.cancel_reason == "timeout":
            return "failed", f"timed out after {queue.timeout_seconds:g} s"
        if run.cancel_reason is not None:
            return "returned", ""
        if run.postponed_seconds is not None:
            return "postponed", ""
        return ("failed", error) if error else ("completed", "")

    def _backoff_seconds(self, retries: int) -> float:
        """Doubles after each run, with 50 % jitter, so that jobs that failed together do not retry together."""
        return min(self.retry_seconds * 2.0**retries, _MAX_RETRY_SECONDS) * random.uniform(0.5, 1.5)

    # Leases, periodic jobs and cleanup

    async def _extend_leases(self) -> None:
        """Extends leases. Cancels jobs whose lease has ended or soon ends, because another tracker may claim them."""
        await asyncio.sleep(self._tick_seconds)
        runs = [run for run in self._runs if run.cancel_reason != "lost"]
        with suppress(StoreUnavailable):
            untils = await self.jobs.extend([run.job for run in runs]) if runs else []
            for run, until in zip(runs, untils, strict=True):
                run.lease_until = until or 0.0
        now = self.clock()
        for run in list(self._runs):
            if run.lease_until <= now + self._tick_seconds:
                run.cancel("lost")
            elif run.cancel_reason is not None:
                run.cancel(run.cancel_reason)

    async def _enqueue_periodic(self) -> None:
        for queue, seconds in self._periodic.items():
            start = self.clock() // seconds * seconds
            if self._slots.get(queue) != start and not self._draining:
                self._slots[queue] = start
                try:
                    await self.jobs.enqueue_slot(queue, start, seconds)
                except StoreUnavailable:
                    del self._slots[queue]
                    raise
                except RedisError as error:  # continue with the other queues
                    log.error("cannot enqueue periodic job", queue=queue, error=str(error))
                self._wake.set()

    async def _clean_up(self) -> None:
        await self.jobs.expire()
        for queue in set(await self.jobs.queues()) - self.queues.keys():
            try:
                if await self.jobs.abandon(queue, ABANDONED_SECONDS):
                    log.warning("jobs of an unknown queue failed", queue=queue)
            except ResponseError as error:  # a key of another type
                log.error("cannot read unknown queue", queue=queue, error=str(error))


def _describe(error: BaseException) -> str:
    """The error as shown in the list of failed jobs; only its type where its text cannot be made."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    name = type(error).__name__
    try:
        text = f"{name}: {error}" if str(error) else name
    except Exception:  # noqa: BLE001  # its own __str__ failed
        return name
    return text.encode("utf-8", "replace").decode()
