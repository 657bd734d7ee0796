"""Runs the jobs of the queues: claims as many as there is room for, extends their leases, writes how they ended.

One loop talks to the store: it writes the results that have come in, claims for the slots that are free, and waits
until a job ends or half a second has passed. What finishes while a call is under way goes into the next together.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from redis.exceptions import RedisError, ResponseError

from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.job import Claimed, Outcome, Result
from tracker.store.jobs import MAX_BATCH, Jobs

POLL_SECONDS = 0.5
STOP_SECONDS = 3.0
ABANDONED_SECONDS = 86_400.0
"""A job of a queue that no tracker here knows waits so long before it fails: another may know it."""
_HOUSEKEEPING_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 10.0
_LONGEST_RETRY_SECONDS = 3600.0
_LAST_WORD_SECONDS = 1.0
_CANCEL_AGAIN_SECONDS = 10.0

Why = Literal["timeout", "lost", "stopping"]

log = structlog.get_logger("tracker.jobs")


@dataclass(frozen=True, slots=True)
class Queue:
    """What is done with the jobs of a queue.

    ``handler(payload)`` does one, and raises when it could not; where ``resumes``, it is ``handler(payload, job)``:
    ``job.cursor`` is what Jobs.save_cursor kept in an earlier run. It may be cancelled, and may run again.
    """

    handler: Callable[..., Awaitable[None]]
    concurrency: int = 1
    """Jobs at the same time, over all trackers on the store."""
    timeout_seconds: float = 1800.0
    resumes: bool = False


class _Run:
    """A job under way. Its token is no name for it: a store that lost its data gives the same out again."""

    def __init__(self, job: Claimed) -> None:
        self.job = job
        self.lease_until = job.lease_until
        self.why: Why | None = None
        self.task: asyncio.Task[None] | None = None
        self._cancelled_at = 0.0

    def cancel(self, why: Why) -> None:
        """The first reason holds. Told again after a while, a handler that did not listen is cancelled again."""
        now = asyncio.get_running_loop().time()
        if self.why is not None:
            if now - self._cancelled_at < _CANCEL_AGAIN_SECONDS:
                return
            log.warning("a job does not end though it was cancelled", queue=self.job.queue, job=self.job.id)
        self.why, self._cancelled_at = self.why or why, now
        if self.task is not None:
            self.task.cancel()


class JobWorker:
    """Runs the jobs of ``queues``, and enqueues those of ``periodic`` once in so many seconds (epoch // seconds).

    ``clock`` gives epoch seconds. To stop gracefully, await ``drain`` and then cancel ``run``.
    """

    def __init__(
        self,
        jobs: Jobs,
        connection: Connection,
        queues: Mapping[str, Queue],
        *,
        periodic: Mapping[str, float] | None = None,
        clock: Callable[[], float],
        poll_seconds: float = POLL_SECONDS,
        retry_seconds: float = _FIRST_RETRY_SECONDS,
    ) -> None:
        self._jobs = jobs
        self._connection = connection
        self._queues = dict(queues)
        self._periodic = dict(periodic or {})
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._retry_seconds = retry_seconds
        self._tick_seconds = jobs.limits.lease_seconds / 6
        self._runs: set[_Run] = set()
        self._results: list[Result] = []
        self._slots: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._calling = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()
        self._draining = False

    @property
    def running(self) -> int:
        """Jobs under way here."""
        return len(self._runs)

    async def run(self) -> None:
        """Runs until cancelled, whatever the store does meanwhile. Cancelled once, it stops as ``drain`` does."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for part in (self._serve, self._hold_leases, self._enqueue_periodic, self._keep_house):
                    tasks.create_task(self._persist(part), name=f"jobs {part.__name__}")
                try:
                    await asyncio.Event().wait()  # a claim under way is not cut off when this is cancelled
                except asyncio.CancelledError:
                    await self.drain()
                    raise
        finally:
            with suppress(StoreAway, RedisError, TimeoutError):
                async with asyncio.timeout(_LAST_WORD_SECONDS):
                    await self._write_results()

    async def drain(self, seconds: float = STOP_SECONDS) -> None:
        """Claims no more. Jobs that do not end within ``seconds`` are cancelled and go back, as if never begun."""
        self._draining = True
        async with self._calling:  # what is just being claimed starts or goes back first
            under_way = self._under_way()
        if under_way:
            await asyncio.wait(under_way, timeout=seconds)
        for run in list(self._runs):
            run.cancel("stopping")
        if under_way := self._under_way():
            await asyncio.wait(under_way, timeout=seconds)
        with suppress(StoreAway, RedisError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS), self._calling:
                await self._write_results()

    def _under_way(self) -> set[asyncio.Task[None]]:
        return {run.task for run in self._runs if run.task is not None}

    async def _persist(self, part: Callable[[], Awaitable[None]]) -> None:
        """Each part starts again when the store is back; nothing in them is worth dying for."""
        while True:
            try:
                await part()
            except StoreAway:
                await asyncio.sleep(0.1)
                await self._connection.until_back()
            except RedisError as error:
                log.error("the job queue failed", error=str(error))
                await asyncio.sleep(1)

    # Claiming and writing

    async def _serve(self) -> None:
        while True:
            async with self._calling:
                await self._write_results()
                if not self._draining:
                    await self._claim()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await self._wake.wait()
            self._wake.clear()

    async def _claim(self) -> None:
        busy = Counter(run.job.queue for run in self._runs)
        wants = {
            name: (queue.concurrency, max(0, queue.concurrency - busy[name]))
            for name, queue in self._queues.items()
        }
        for job in await self._jobs.claim(wants):
            run = _Run(job)
            self._runs.add(run)
            run.task = self._tasks.create_task(self._work(run), name=f"job {job.queue} {job.id}")

    async def _write_results(self) -> None:
        """Results that could not be written stay for the next time; written twice, the second is void."""
        while batch := self._results[:MAX_BATCH]:
            statuses = await self._jobs.finish(batch)
            del self._results[: len(batch)]
            for result, status in zip(batch, statuses, strict=True):
                if not status and result.outcome != "returned":
                    log.warning("a job's result is void", queue=result.job.queue, job=result.job.id)

    # One job

    async def _work(self, run: _Run) -> None:
        loop = asyncio.get_running_loop()
        queue, began = self._queues[run.job.queue], loop.time()
        alarm = loop.call_later(queue.timeout_seconds, run.cancel, "timeout")
        outcome: Outcome = "returned"
        error = ""
        try:
            outcome, error = await self._attempt(run, queue)
        finally:
            alarm.cancel()
            self._runs.remove(run)
            delay = self._backoff_seconds(run.job.retries)
            self._results.append(Result(run.job, outcome, error, delay, loop.time() - began))
            self._wake.set()
        if error:
            log.warning("a job failed", queue=run.job.queue, job=run.job.id, error=error)

    async def _attempt(self, run: _Run, queue: Queue) -> tuple[Outcome, str]:
        payload = _parse(run.job.payload)
        if payload is None:
            return "fatal", "its payload is no JSON object"
        error = ""
        try:
            await (queue.handler(payload, run.job) if queue.resumes else queue.handler(payload))
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if run.why is None and task is not None and task.cancelling():
                raise  # the whole worker ends
            error = _describe(cancelled)
        except BaseException as raised:  # noqa: BLE001  # whatever a handler raises is that job's affair
            error = _describe(raised)
        if run.why == "timeout":
            return "failed", f"did not end within {queue.timeout_seconds:g} s"
        if run.why is not None:
            return "returned", ""
        return ("failed", error) if error else ("completed", "")

    def _backoff_seconds(self, retries: int) -> float:
        """Twice as long after each run, and up to half more or less, so that what failed together parts."""
        return min(self._retry_seconds * 2.0**retries, _LONGEST_RETRY_SECONDS) * random.uniform(0.5, 1.5)

    # What else there is to do

    async def _hold_leases(self) -> None:
        """Extends leases, and stops what may be somebody else's by now: its lease ended, or nearly, unextended."""
        while True:
            await asyncio.sleep(self._tick_seconds)
            with suppress(StoreAway):
                await self._extend([run for run in self._runs if run.why != "lost"])
            now = self._clock()
            for run in list(self._runs):
                if run.lease_until <= now + self._tick_seconds:
                    run.cancel("lost")
                elif run.why is not None:
                    run.cancel(run.why)

    async def _extend(self, runs: list[_Run]) -> None:
        if not runs:
            return
        untils = await self._jobs.extend([run.job for run in runs])
        for run, until in zip(runs, untils, strict=True):
            run.lease_until = until or 0.0

    async def _enqueue_periodic(self) -> None:
        while True:
            for queue, seconds in self._periodic.items():
                start = self._clock() // seconds * seconds
                if self._slots.get(queue) != start and not self._draining:
                    self._slots[queue] = start
                    try:
                        await self._jobs.enqueue_slot(queue, start, seconds)
                    except StoreAway:
                        del self._slots[queue]
                        raise
                    except RedisError as error:  # no reason to leave the other queues out
                        log.error("a periodic job was not enqueued", queue=queue, error=str(error))
                    self._wake.set()
            await asyncio.sleep(min(1.0, self._poll_seconds))

    async def _keep_house(self) -> None:
        while True:
            await self._jobs.expire()
            for queue in set(await self._jobs.queues()) - self._queues.keys():
                try:
                    if await self._jobs.abandon(queue, ABANDONED_SECONDS):
                        log.warning("jobs failed because nobody works on their queue", queue=queue)
                except ResponseError as error:  # somebody else wrote there
                    log.error("an unknown queue cannot be looked at", queue=queue, error=str(error))
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)


def _parse(text: str) -> dict[str, Any] | None:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def _describe(error: BaseException) -> str:
    """What a person reads in the list of failed jobs; an error that cannot even say what it is has its name."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    name = type(error).__name__
    try:
        text = f"{name}: {error}" if str(error) else name
    except Exception:  # noqa: BLE001  # its own __str__ failed
        return name
    return text.encode("utf-8", "replace").decode()
