"""Sends the figures of the outbox to whoever takes them (StatHat, StatsD): what is the same for all of them.

What was taken leaves the store; what was not answered is sent again, so that an outage may count something twice but
loses nothing that the outbox can hold. A figure that is refused by itself while others are taken will never be taken:
it is dropped, and the drop counted. Where everything is refused nothing is dropped, for then the key or the address
is wrong.
"""

import asyncio
import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import structlog
from redis.exceptions import RedisError

from tracker.counting import Count
from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.outbox import Outbox, Parcel

BATCH = 500
"""Most figures in one request. Clients of StatHat say that it takes 1,000."""
FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 900.0
LEASE_SLACK_SECONDS = 50.0
LONGEST_NAME = 255
TROUBLES = 5
"""So often a single figure may be in trouble, while others are taken, before it counts as refused."""
_MOST_REQUESTS = 100
_FLUSH_SECONDS = 50.0

log = structlog.get_logger("tracker.figures")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number to be sent; ``at`` is epoch s. Counts add up, a value is what was measured."""

    statistic: str
    number: int
    at: int
    kind: Literal["count", "value"] = "count"


class Verdict(Enum):
    TAKEN = "taken"
    REFUSED = "refused"
    """This batch will never be taken as it is."""
    TROUBLE = "trouble"
    """The other side has an error of its own, and perhaps this batch is the cause."""
    FAILED = "failed"
    """Perhaps later; whether it was counted nobody knows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``reason`` is for the log, in words of ours; ``pause`` (s) is how long the other side wants to be left alone."""

    verdict: Verdict
    reason: str = ""
    pause: float = 0.0


TAKEN = Answer(Verdict.TAKEN)
Post = Callable[[Sequence[Figure]], Awaitable[Answer]]
"""Sends one batch; it answers for every failure, and raises nothing but cancellation."""
Settlement = Callable[[Sequence[Parcel]], Awaitable[None]]


def short_name(name: str) -> str:
    """At most 255 characters; what is cut off leaves a hash, so that different names stay different."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - 17]}.{digest}"


class Sender:
    """Empties the outbox through a ``post`` whenever ``flush`` is called, unless it pauses after a failure.

    ``receiver`` names the other side in the log and, in lower case, in counters. ``timeout`` (s) is the longest that one
    ``post`` takes, ``torrents`` the number of torrents to be scored, ``clock`` epoch s, ``chance`` random in [0, 1).
    """

    def __init__(
        self,
        receiver: str,
        outbox: Outbox,
        connection: Connection,
        *,
        timeout: float,
        torrents: Callable[[], Awaitable[int]],
        count: Count,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._receiver = receiver
        self._outbox = outbox
        self._lease_seconds = timeout + LEASE_SLACK_SECONDS
        self._torrents = torrents
        self._count = count
        self._clock = clock
        self._chance = chance
        self._flushing = asyncio.Lock()
        self._unsettled: deque[tuple[Settlement, list[Parcel]]] = deque()
        self._most = BATCH
        self._troubles = 0
        self._failures = 0
        self._not_before = 0.0
        self._complaint = ""
        connection.on_return(self.settle)

    async def flush(self, post: Post) -> None:
        """Sends what waits, for less than a minute; raises StoreAway and redis.exceptions.RedisError."""
        async with self._flushing:
            await self.settle()
            now = self._clock()
            if now < self._not_before <= now + LONGEST_PAUSE_SECONDS:
                return
            # Goes first and alone: when this is taken, the other side is there and takes figures of ours.
            value = Figure("torrents.count", await self._torrents(), int(now), "value")
            answer = await post([value])
            if answer.verdict is Verdict.TAKEN:
                self._counted("sent")
                answer = await self._empty(post, now + _FLUSH_SECONDS)
            if answer.verdict is Verdict.TAKEN:
                self._resume()
            else:
                self._pause(answer)

    async def _empty(self, post: Post, until: float) -> Answer:
        """Batch by batch. One that is refused is made smaller until the figure that is to blame stands alone."""
        for _ in range(_MOST_REQUESTS):
            now = self._clock()
            if now >= until or not (parcels := await self._outbox.take(now, self._most, self._lease_seconds)):
                break
            size = sum(len(parcel.counts) for parcel in parcels)
            answer = await self._offer(post, parcels)
            verdict = self._without_patience(answer.verdict, size)
            if verdict is Verdict.TAKEN:
                self._most = min(BATCH, 2 * self._most)
                await self._settle(self._outbox.sent, parcels)
                self._counted("sent", size)
            elif verdict is Verdict.REFUSED and size == 1:
                await self._settle(self._outbox.drop, parcels)
                self._dropped(next(_figures(parcels[0])))
            else:
                self._most = self._most if verdict is Verdict.FAILED else max(1, size // 2)
                await self._settle(self._outbox.release, parcels)
            if verdict in (Verdict.FAILED, Verdict.TROUBLE):
                return answer
        return TAKEN

    async def _offer(self, post: Post, parcels: list[Parcel]) -> Answer:
        try:
            return await post([figure for parcel in parcels for figure in _figures(parcel)])
        except BaseException:
            with suppress(StoreAway, RedisError):  # then the leases end by themselves
                await self._outbox.release(parcels)
            raise

    def _without_patience(self, verdict: Verdict, size: int) -> Verdict:
        """A server that has an error for one figure again and again will not take it any more."""
        self._troubles = self._troubles + 1 if verdict is Verdict.TROUBLE and size == 1 else 0
        return Verdict.REFUSED if self._troubles >= TROUBLES else verdict

    async def _settle(self, settlement: Settlement, parcels: list[Parcel]) -> None:
        self._unsettled.append((settlement, parcels))
        try:
            await self.settle()
        except asyncio.CancelledError:
            # What was answered must be known all the same; saying it twice does no harm.
            with suppress(StoreAway, RedisError):
                await self.settle()
            raise

    async def settle(self) -> None:
        """Tells the store what became of the batches it does not know about yet; the first thing when it is back."""
        while self._unsettled:
            settlement, parcels = entry = self._unsettled[0]
            try:
                await settlement(parcels)
            except RedisError:  # it will not have it; the leases end, and it is sent again
                self._settled(entry)
                raise
            self._settled(entry)

    def _settled(self, entry: tuple[Settlement, list[Parcel]]) -> None:
        # The greeting of a store that is back may have been here meanwhile.
        if self._unsettled and self._unsettled[0] is entry:
            self._unsettled.popleft()

    def _dropped(self, figure: Figure) -> None:
        self._counted("dropped")
        self._troubles = 0
        log.warning("a figure is refused, and dropped", receiver=self._receiver, statistic=figure.statistic)

    def _pause(self, answer: Answer) -> None:
        self._counted("failed")
        self._failures = min(self._failures + 1, 10)
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._failures)
        pause = max(longest * self._chance(), min(answer.pause, LONGEST_PAUSE_SECONDS))
        self._not_before = self._clock() + pause
        if answer.reason != self._complaint:
            log.warning("figures are not taken, and wait", receiver=self._receiver, reason=answer.reason)
        self._complaint = answer.reason

    def _resume(self) -> None:
        if self._complaint:
            log.info("figures are taken again", receiver=self._receiver)
        self._failures, self._not_before, self._complaint = 0, 0.0, ""

    def _counted(self, what: str, by: int = 1) -> None:
        self._count(f"{self._receiver.lower()}.{what}", by=by)


def _figures(parcel: Parcel) -> Iterator[Figure]:
    for statistic, count in parcel.counts.items():
        yield Figure(statistic.decode("utf-8", "replace"), count, parcel.minute)
