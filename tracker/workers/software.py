"""Counts client programs behind the announce path: joins and refusals add up here, and go to the store every few seconds.

Anybody can invent names, so only so many different ones are kept between two sendings; what is more is dropped, and the
drop counted. Those heard most the last time keep their places, so that a flood of invented names does not drive out the
real ones. A batch that the store may or may not have is kept and sent again: the store counts it once.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

import structlog
from redis.exceptions import OutOfMemoryError, RedisError

from tracker.bittorrent import PeerId
from tracker.counting import Count
from tracker.errors import StoreAway
from tracker.store.software import MAX_BATCH, Heard, Software, shown

SEND_SECONDS = 3.0
MOST_WAITING = 1000
"""Different programs and reasons kept between two sendings."""
FAMILIAR = 200
"""How many of them keep their places for the next."""
LOG_SECONDS = 60.0
FLUSH_SECONDS = 3.0
"""How long a graceful stop may take for what still waits."""
_MOST_TRIES = 5

log = structlog.get_logger("tracker.software")


class _Batch(NamedTuple):
    number: int
    heard: dict[Heard, int]
    time: float


class Census:
    """``name`` says which program a peer id names, ``count`` takes the counters' names, ``clock`` gives epoch seconds."""

    def __init__(
        self,
        software: Software,
        *,
        name: Callable[[PeerId], str],
        count: Count,
        clock: Callable[[], float],
    ) -> None:
        self._software = software
        self._name = name
        self._count = count
        self._clock = clock
        self._heard: dict[Heard, int] = {}
        self._batch: _Batch | None = None
        self._batches = 0
        self._tries = 0
        self._sending = asyncio.Lock()
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """Joins and refusals that the store has not, as far as is known here."""
        return sum(self._heard.values()) + (sum(self._batch.heard.values()) if self._batch else 0)

    def note(self, peer_id: PeerId, label: str) -> None:
        """A peer joined, or was refused with a failure of this ``label``. Costs a few microseconds."""
        heard = self._name(peer_id), label
        known = self._heard.get(heard)
        if known is not None:
            self._heard[heard] = known + 1
        elif len(self._heard) < MOST_WAITING:
            self._heard[heard] = 1
        else:
            self._drop(1)

    def _drop(self, events: int) -> None:
        self._dropped += events
        self._count("software_dropped", by=events)

    async def run(self) -> None:
        """Runs until cancelled, whatever the store does meanwhile. What waits then is for ``flush``."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self._send_now_and_then, self._tell_of_drops):
                tasks.create_task(part(), name=f"software {part.__name__}")

    async def _send_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SEND_SECONDS)
            try:
                await self._send()
            except (StoreAway, OutOfMemoryError):
                pass  # the next time; what waits meanwhile is bounded
            except RedisError as error:
                log.error("counting clients failed", error=str(error))
                self._give_up_on_a_bad_batch()

    def _give_up_on_a_bad_batch(self) -> None:
        """One that the store refuses again and again must not stop the others."""
        self._tries += 1
        if self._tries >= _MOST_TRIES and self._batch is not None:
            self._drop(sum(self._batch.heard.values()))
            self._batch, self._tries = None, 0

    async def _send(self) -> None:
        """Sends what was heard until now, batch by batch."""
        async with self._sending:
            if self._batch is not None:
                await self._send_batch(self._batch)
            sent = {heard: times for heard, times in self._heard.items() if times}
            waiting = list(sent)
            for at in range(0, len(waiting), MAX_BATCH):
                self._batch = self._take(waiting[at : at + MAX_BATCH])
                await self._send_batch(self._batch)
            if sent:
                self._forget_all_but_the_familiar(sent)

    def _take(self, heard: Sequence[Heard]) -> _Batch:
        """A batch of these; names that are the same once they are fit to be stored add up."""
        batch: dict[Heard, int] = {}
        for each in heard:
            stored = shown(*each)
            batch[stored] = batch.get(stored, 0) + self._heard[each]
            self._heard[each] = 0
        self._batches += 1
        return _Batch(self._batches, batch, self._clock())

    async def _send_batch(self, batch: _Batch) -> None:
        await self._software.add(batch.number, batch.heard, batch.time)
        self._batch, self._tries = None, 0

    def _forget_all_but_the_familiar(self, sent: Mapping[Heard, int]) -> None:
        familiar = set(nlargest(FAMILIAR, self._heard, key=lambda heard: sent.get(heard, 0)))
        self._heard = {heard: times for heard, times in self._heard.items() if times or heard in familiar}

    async def flush(self) -> None:
        """Sends all that waits, at a graceful stop; what the store does not take in time is dropped."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._send()
        except (StoreAway, RedisError, TimeoutError) as error:
            log.warning("clients were not counted at the stop", events=self.waiting, error=str(error))
            self._drop(self.waiting)
            self._heard, self._batch = {}, None

    async def _tell_of_drops(self) -> None:
        """One line a minute at most."""
        told = 0
        while True:
            await asyncio.sleep(LOG_SECONDS)
            if self._dropped > told:
                log.warning(
                    "clients were not counted: too many different names, or the store refuses them",
                    events=self._dropped - told,
                )
                told = self._dropped
