"""Sends the samples of the outbox to a receiver: StatHat or StatsD.

An accepted sample is removed from the store. A sample without a reply is sent again: an outage may count it twice,
but loses nothing that the outbox can hold. A sample that is rejected alone, while others are accepted, is dropped and
counted as dropped. While every sample is rejected, none is dropped: the key or the address is wrong then.
"""

import asyncio
import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from redis.exceptions import RedisError

from tracker.store.stats.outbox import OutboxBatch
from tracker.store.store import Store
from tracker.system.logger import Logger
from tracker.workers.loop import survive

MAX_SAMPLES = 500
"""Samples in one request. According to its clients StatHat accepts 1,000."""
FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 900.0
LEASE_MARGIN_SECONDS = 50.0
MAX_NAME_LENGTH = 255
MAX_SERVER_ERRORS = 5
"""Server errors in a row for a single sample, while others are accepted, before it counts as rejected."""
FLUSH_SECONDS = 60.0
"""How often the outbox is sent."""
_MAX_REQUESTS = 100
_FLUSH_SECONDS = 50.0

log = Logger("tracker.push")


@dataclass(frozen=True, slots=True)
class Sample:
    """One number to send; ``time`` is epoch s. Counts add up; a gauge is a measured value."""

    name: str
    number: int
    time: int
    kind: Literal["count", "gauge"] = "count"


class Outcome(Enum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """The receiver will never accept this batch as it is."""
    SERVER_ERROR = "server error"
    """The receiver failed; this batch may be the cause."""
    UNAVAILABLE = "unavailable"
    """Retry later. The receiver may or may not have counted the batch."""


@dataclass(frozen=True, slots=True)
class Result:
    """``reason`` is a fixed text for the log; ``retry_after`` (s) is the pause that the receiver asks for."""

    outcome: Outcome
    reason: str = ""
    retry_after: float = 0.0


ACCEPTED = Result(Outcome.ACCEPTED)
Send = Callable[[Sequence[Sample]], Awaitable[Result]]
"""Sends one batch. Reports every failure in its result; raises CancelledError only."""
Acknowledge = Callable[[Sequence[OutboxBatch]], Awaitable[None]]


class Receiver(Protocol):
    name: str
    """Shown in the log; in lower case the prefix of the sender's counters."""
    timeout_seconds: float
    """Upper bound of one ``Send``."""

    @property
    def enabled(self) -> bool:
        """Whether the settings name a receiver."""

    def connect(self) -> AbstractAsyncContextManager[Send]:
        """Opens what one flush sends through."""


def shorten(name: str) -> str:
    """Shortens a name to 255 characters. A shortened name ends in a hash of the whole, so names stay different."""
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: MAX_NAME_LENGTH - 17]}.{digest}"


@dataclass(eq=False)
class Sender:
    """Empties the outbox at each ``flush``, except during a pause after a failure. ``gauges`` returns values by name,
    at least one, ``chance`` a random number in [0, 1)."""

    receiver: Receiver
    store: Store
    gauges: Callable[[], Awaitable[Mapping[str, int]]]
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self._flushing = asyncio.Lock()
        self._unacknowledged: deque[tuple[Acknowledge, list[OutboxBatch]]] = deque()
        self._max_samples = MAX_SAMPLES
        self._server_errors = 0
        self._failures = 0
        self._paused_until = 0.0
        self._last_reason = ""
        self._outbox = self.store.outbox
        self.store.connection.on_reconnect(self.acknowledge)

    async def flush(self, _payload: object = None) -> None:
        """Handles push_figures jobs, for StatHat and StatsD: sends what waits, for less than a minute. A failure of the
        receiver starts a pause. Raises StoreUnavailable and redis.exceptions.RedisError."""
        if not self.receiver.enabled:
            return
        async with self._flushing:
            await self.acknowledge()
            now = self.store.clock()
            if now < self._paused_until <= now + MAX_PAUSE_SECONDS:
                return
            async with self.receiver.connect() as send:
                result = await self._flush(send, now)
            if result.outcome is not Outcome.ACCEPTED:
                self._pause(result)
                return
            if self._last_reason:
                log.info("metrics receiver available again", receiver=self.receiver.name)
            self._failures, self._paused_until, self._last_reason = 0, 0.0, ""

    async def _flush(self, send: Send, now: float) -> Result:
        """Sends one gauge alone first. Once it is accepted, the receiver works, and the key and the address are
        right."""
        values = await self.gauges()
        first, *others = [Sample(name, value, int(now), "gauge") for name, value in values.items()]
        for gauges in filter(None, ([first], others)):
            result = await send(gauges)
            if result.outcome is not Outcome.ACCEPTED:
                return result
            self._count_as("sent", len(gauges))
        return await self._send_batches(send, now + _FLUSH_SECONDS)

    async def _send_batches(self, send: Send, until: float) -> Result:
        """Sends request after request. Halves a rejected one until the sample at fault is alone."""
        for _ in range(_MAX_REQUESTS):
            now, lease_seconds = self.store.clock(), self.receiver.timeout_seconds + LEASE_MARGIN_SECONDS
            batches = await self._outbox.take(now, self._max_samples, lease_seconds) if now < until else []
            if not batches:
                break
            size = sum(len(batch.counts) for batch in batches)
            result = await self._send_or_release(send, batches)
            outcome = self._limit_server_errors(result.outcome, size)
            if outcome is Outcome.ACCEPTED:
                self._max_samples = min(MAX_SAMPLES, 2 * self._max_samples)
                await self._acknowledge_by(self._outbox.acknowledge, batches)
                self._count_as("sent", size)
            elif outcome is Outcome.REJECTED and size == 1:
                await self._acknowledge_by(self._outbox.drop, batches)
                self._count_as("dropped")
                (sample,) = _samples(batches)
                log.warning("metric rejected and dropped", receiver=self.receiver.name, metric=sample.name)
            else:
                if outcome is not Outcome.UNAVAILABLE:
                    self._max_samples = max(1, size // 2)
                await self._acknowledge_by(self._outbox.release, batches)
            if outcome in (Outcome.UNAVAILABLE, Outcome.SERVER_ERROR):
                return result
        return ACCEPTED

    async def _send_or_release(self, send: Send, batches: list[OutboxBatch]) -> Result:
        try:
            return await send(_samples(batches))
        except BaseException:
            await survive(self._outbox.release(batches))  # the leases expire without it
            raise

    def _limit_server_errors(self, outcome: Outcome, size: int) -> Outcome:
        """Returns the outcome, or REJECTED after ``MAX_SERVER_ERRORS`` in a row for a single sample."""
        alone = outcome is Outcome.SERVER_ERROR and size == 1
        self._server_errors = self._server_errors + 1 if alone else 0
        if self._server_errors < MAX_SERVER_ERRORS:
            return outcome
        self._server_errors = 0
        return Outcome.REJECTED

    async def _acknowledge_by(self, acknowledge: Acknowledge, batches: list[OutboxBatch]) -> None:
        self._unacknowledged.append((acknowledge, batches))
        try:
            await self.acknowledge()
        except asyncio.CancelledError:
            # The store must get the result even if the task is cancelled. A second acknowledgement changes nothing.
            await survive(self.acknowledge())
            raise

    async def acknowledge(self) -> None:
        """Reports the results that the store does not know yet; also called when the store is back."""
        while self._unacknowledged:
            acknowledge, batches = entry = self._unacknowledged[0]
            refused = None
            try:
                await acknowledge(batches)
            except RedisError as error:  # refused for good: the leases expire, and the samples are sent again
                refused = error
            if self._unacknowledged and self._unacknowledged[0] is entry:  # not removed at a reconnect meanwhile
                self._unacknowledged.popleft()
            if refused is not None:
                raise refused

    def _pause(self, result: Result) -> None:
        self._count_as("failed")
        self._failures = min(self._failures + 1, 10)
        max_pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._failures)
        pause = max(max_pause * self.chance(), min(result.retry_after, MAX_PAUSE_SECONDS))
        self._paused_until = self.store.clock() + pause
        if result.reason != self._last_reason:
            name, reason = self.receiver.name, result.reason
            log.warning("metrics receiver unavailable, buffering", receiver=name, reason=reason)
        self._last_reason = result.reason

    def _count_as(self, result: str, by: int = 1) -> None:
        self.store.counters.count(f"{self.receiver.name.lower()}.{result}", by=by)


def _samples(batches: Sequence[OutboxBatch]) -> list[Sample]:
    return [
        Sample(name.decode("utf-8", "replace"), count, batch.minute)
        for batch in batches
        for name, count in batch.counts.items()
    ]
