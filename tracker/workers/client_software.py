"""Counts joins and refusals per client program, outside the announce path; sends the counts to the store every 3 s.

Clients can invent names, so the number of different names between two batches is bounded. Further ones are dropped and
counted as dropped. The most frequent names of the last batch keep their entries, so a flood of invented names does not
displace the real ones. A batch without a reply of the store is sent again; the store counts it once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from heapq import nlargest
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError, RedisError

from tracker.bittorrent import Address, PeerId
from tracker.errors import StoreUnavailable
from tracker.store.stats.client_software import MAX_BATCH, MIN_ADDRESSES, ClientEvent, shown
from tracker.store.store import Store
from tracker.system.logger import Logger
from tracker.wire.peer_id import client_name
from tracker.workers.loop import Sleep, forever

SEND_SECONDS = 3.0
MAX_WAITING = 1000
"""Different (program, reason) pairs between two batches."""
KEPT_NAMES = 200
"""The most frequent pairs of a batch, which keep their entries for the next one."""
LOG_SECONDS = 60.0
FLUSH_SECONDS = 3.0
"""Time limit of the last batches at a graceful stop."""
_MAX_ATTEMPTS = 5

log = Logger("tracker.software")


class _Batch(NamedTuple):
    number: int
    counts: dict[ClientEvent, int]
    addresses: dict[ClientEvent, set[Address]]
    time: float


@dataclass(eq=False)
class ClientSoftwareCounter:
    """``name`` says which program a peer id names. ``flush`` takes at most ``flush_seconds``."""

    store: Store
    _: KW_ONLY
    name: Callable[[PeerId], str] = client_name
    sleep: Sleep = asyncio.sleep
    flush_seconds: float = FLUSH_SECONDS

    def __post_init__(self) -> None:
        self._counts: dict[ClientEvent, int] = {}
        self._addresses: defaultdict[ClientEvent, set[Address]] = defaultdict(set)
        """Some addresses of each pair since the last batch, as many as a new one needs."""
        self._batch: _Batch | None = None
        self._batches = 0
        self._attempts = 0
        self._sending = asyncio.Lock()
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """Joins and refusals not yet confirmed by the store."""
        return sum(self._counts.values()) + (sum(self._batch.counts.values()) if self._batch else 0)

    def add(self, peer_id: PeerId, label: str, address: Address) -> None:
        """Counts a join, or a refusal with this failure ``label``. Takes a few microseconds."""
        pair = self.name(peer_id), label
        known = self._counts.get(pair)
        if known is None and len(self._counts) >= MAX_WAITING:
            self._drop(1)
            return
        self._counts[pair] = (known or 0) + 1
        addresses = self._addresses[pair]
        if len(addresses) < MIN_ADDRESSES:
            addresses.add(address)

    def _drop(self, events: int) -> None:
        self._dropped += events
        self.store.counters.count("software_dropped", by=events)

    async def run(self) -> None:
        """Runs until cancelled. Call ``flush`` afterwards."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(self._send_next, SEND_SECONDS, "cannot count client programs", sleep=self.sleep))
            tasks.create_task(forever(self._log_drops, LOG_SECONDS, sleep=self.sleep))

    async def _send_next(self) -> None:
        try:
            await self._send()
        except OutOfMemoryError:
            return  # sent again with the next batch; the queue is bounded
        except RedisError:
            self._attempts += 1
            if self._attempts >= _MAX_ATTEMPTS and self._batch is not None:  # so that others can follow
                self._drop(sum(self._batch.counts.values()))
                self._batch, self._attempts = None, 0
            raise

    async def _send(self) -> None:
        """Sends all current counts, batch by batch."""
        async with self._sending:
            if self._batch is not None:
                await self._send_batch(self._batch)
            sent = {pair: number for pair, number in self._counts.items() if number}
            waiting = list(sent)
            for at in range(0, len(waiting), MAX_BATCH):
                self._batch = self._take(waiting[at : at + MAX_BATCH])
                await self._send_batch(self._batch)
            if sent:
                frequent = set(nlargest(KEPT_NAMES, self._counts, key=lambda pair: sent.get(pair, 0)))
                self._counts = {pair: number for pair, number in self._counts.items() if number or pair in frequent}

    def _take(self, pairs: Sequence[ClientEvent]) -> _Batch:
        """A batch of these pairs. Names that become equal when they are cleaned for storage add up."""
        batch: dict[ClientEvent, int] = {}
        addresses = defaultdict[ClientEvent, set[Address]](set)
        for each in pairs:
            stored = shown(*each)
            batch[stored] = batch.get(stored, 0) + self._counts[each]
            addresses[stored] |= self._addresses.pop(each)
            self._counts[each] = 0
        self._batches += 1
        return _Batch(self._batches, batch, addresses, self.store.clock())

    async def _send_batch(self, batch: _Batch) -> None:
        await self.store.client_software.add(batch.number, batch.counts, batch.time, batch.addresses)
        self._batch, self._attempts = None, 0

    async def flush(self) -> None:
        """Sends what is waiting, at a graceful stop. Drops what the store does not accept in time."""
        try:
            async with asyncio.timeout(self.flush_seconds):
                await self._send()
        except (StoreUnavailable, RedisError, TimeoutError) as error:
            log.warning("client programs not counted at shutdown", events=self.waiting, error=str(error))
            self._drop(self.waiting)
            self._counts, self._batch = {}, None
            self._addresses.clear()

    async def _log_drops(self) -> None:
        if self._dropped:
            text = "client programs not counted: too many names, or refused by the store"
            log.warning(text, events=self._dropped)
            self._dropped = 0
