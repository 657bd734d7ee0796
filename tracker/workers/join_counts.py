"""Counts what joins and refusals show, outside the announce path: unique users by place, and client programs.

An announce only adds to a bounded queue; what does not fit is dropped and counted as dropped. A batch without a reply
of the store is sent again, and counts once: of unique users because of markers in the store, of client programs because
batches are numbered. Markers are deleted when joins were refused because the store is full: peers go before statistics.

Clients can invent names, so the number of different ones between two batches is bounded. The most frequent names of the
last batch keep their entries, so a flood of invented names does not displace the real ones.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from heapq import nlargest
from typing import ClassVar

from redis.exceptions import OutOfMemoryError, RedisError

from tracker.bittorrent import Address, InfoHash, PeerId
from tracker.errors import StoreUnavailable
from tracker.geoip import Place
from tracker.settings.background import UniqueSettings
from tracker.store.stats import client_software, unique_users
from tracker.store.stats.client_software import MIN_ADDRESSES, ClientEvent, shown
from tracker.store.stats.metric_names import NOWHERE, place_names, user_name
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.store import Store
from tracker.system.logger import Logger
from tracker.wire.peer_id import client_name
from tracker.workers.loop import Sleep, forever

LOG_SECONDS = 60.0
FLUSH_SECONDS = 4.0
"""Time limit of the last batches at a graceful stop."""
_PAUSE_SECONDS = 1.0
_MAX_ATTEMPTS = 5


@dataclass(eq=False)
class _Queue:
    """What waits for the store. ``flush`` takes at most ``flush_seconds``."""

    store: Store
    _: KW_ONLY
    sleep: Sleep = asyncio.sleep
    flush_seconds: float = FLUSH_SECONDS
    log: ClassVar[Logger]
    unit: ClassVar[str]
    """What is counted, for the log."""
    counter: ClassVar[str]
    """The counter of what was dropped."""
    texts: ClassVar[tuple[str, str]]
    """The warnings of drops: at a stop, and before."""

    def __post_init__(self) -> None:
        self._sending = asyncio.Lock()
        self._in_batch = 0
        """How much is in the batch that the store has not confirmed."""
        self._attempts = 0
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """What the store has not confirmed yet."""
        raise NotImplementedError

    async def _send(self) -> None:
        raise NotImplementedError

    def _clear(self) -> None:
        """Forgets what waits for a batch."""
        raise NotImplementedError

    def _end_batch(self) -> int:
        """Forgets the batch; returns how much was in it."""
        ended, self._in_batch, self._attempts = self._in_batch, 0, 0
        return ended

    def _drop(self, number: int) -> None:
        self._dropped += number
        self.store.counters.count(self.counter, by=number)

    async def _send_next(self) -> float:
        """Sends, and returns the seconds until the next call. Drops a batch that the store refuses five times, so that
        others can follow."""
        try:
            await self._send()
            return 0.0
        except OutOfMemoryError:  # the script did not run; the queue is bounded
            return _PAUSE_SECONDS
        except RedisError:
            self._attempts += 1
            if self._attempts >= _MAX_ATTEMPTS:
                self._drop(self._end_batch())
            raise

    async def flush(self) -> None:
        """Counts what is waiting, at a graceful stop. Drops what the store does not accept in time."""
        try:
            async with asyncio.timeout(self.flush_seconds):
                while self.waiting:
                    await self._send()
        except (StoreUnavailable, RedisError, TimeoutError) as error:
            self.log.warning(self.texts[0], **{self.unit: self.waiting}, error=str(error))
            self._drop(self.waiting)
            self._end_batch()
            self._clear()

    async def _log_drops(self) -> None:
        if self._dropped:
            self.log.warning(self.texts[1], **{self.unit: self._dropped})
            self._dropped = 0


MAX_WAITING = 100_000
"""Joins that may wait in one process: 20 MB, and minutes of the store's absence. Further ones are dropped."""
LINGER_SECONDS = 0.25
"""How long the first join of a batch waits for others, because the store's work per batch is shared."""
REFRESH_SECONDS = 10.0
_LOOKUPS_PER_TURN = 16


@dataclass(eq=False)
class UniqueUserCounter(_Queue):
    """``lookup`` returns the place of an address; ``refresh`` (GeoIP) is called every 10 s."""

    settings: UniqueSettings
    _: KW_ONLY
    lookup: Callable[[Address], Place | None]
    refresh: Callable[[], None]
    max_waiting: int = MAX_WAITING
    log, unit, counter = Logger("tracker.unique_users"), "joins", "tally_dropped"
    texts = ("unique users not counted at shutdown", "unique users not counted: queue full, or refused by the store")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._waiting: deque[tuple[InfoHash, Address]] = deque()
        self._arrived = asyncio.Event()
        self._batch: list[UniqueUserEvent] = []
        self._batch_time = 0.0

    @property
    def waiting(self) -> int:
        return len(self._waiting) + self._in_batch

    def add(self, info_hash: InfoHash, address: Address) -> None:
        """Queues a join; drops it when the queue is full."""
        if len(self._waiting) >= self.max_waiting:
            self._drop(1)
            return
        self._waiting.append((info_hash, address))
        self._arrived.set()

    async def run(self) -> None:
        """Runs until cancelled. Call ``flush`` afterwards."""
        sleep = self.sleep
        sending = partial(forever, error_seconds=_PAUSE_SECONDS, connection=self.store.connection, sleep=sleep)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sending(self._send_next, None, "cannot count unique users"))
            tasks.create_task(forever(self._refresh_places, REFRESH_SECONDS, sleep=sleep))
            tasks.create_task(forever(self._log_drops, LOG_SECONDS, sleep=sleep))

    async def _send_next(self) -> float:
        """Waits for joins first."""
        while not self.waiting:
            self._arrived.clear()
            await self._arrived.wait()
        if self.waiting < unique_users.MAX_BATCH:
            await self.sleep(LINGER_SECONDS)
        return await super()._send_next()

    async def _send(self) -> None:
        """Sends one batch."""
        async with self._sending:
            if not self._in_batch:
                await self._fill()
            users = self.store.unique_users
            skipped, dropped = users.skipped, users.dropped
            new = await users.count(self._batch, self._batch_time)
            if skipped := users.skipped - skipped:
                self.store.counters.count("unique_skipped", by=skipped)
            if dropped := users.dropped - dropped:
                self._drop(dropped)
            self._end_batch()
            if new:
                self.store.counters.count("unique.new", by=new)

    async def _fill(self) -> None:
        """Moves waiting joins into the batch. Yields to announces after every 16 lookups."""
        self._batch, self._batch_time = [], self.store.clock()
        while self._waiting and len(self._batch) < unique_users.MAX_BATCH:
            info_hash, address = self._waiting.popleft()
            user, place = user_name(address, self.settings.ipv6_prefix), self.lookup(address)
            names = NOWHERE if place is None else place_names(place.country_name, place.city, place.postcode)
            self._batch.append(UniqueUserEvent(info_hash, user, names))
            self._in_batch += 1
            if len(self._batch) % _LOOKUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _clear(self) -> None:
        self._waiting.clear()

    async def _refresh_places(self) -> None:
        self.refresh()


CLEAN_SECONDS = 5.0
_PAGE_PAUSE_SECONDS = 0.001
"""A pause between two pages, for announces."""


@dataclass(eq=False)
class MarkerCleaner:
    store: Store
    _refused: int | None = None

    async def run(self) -> None:
        failure = "cannot delete markers of unique users"
        await forever(self.check, CLEAN_SECONDS, failure, connection=self.store.connection)

    async def check(self) -> int:
        """Deletes markers if joins were refused since the last check; returns their number."""
        refused = await self.store.markers.refused_joins()
        before, self._refused = self._refused, refused
        if before is None or refused <= before:
            return 0
        deleted = 0
        async for total in self.store.markers.make_room():
            self.store.counters.count("unique_forgotten", by=total - deleted)
            deleted = total
            await asyncio.sleep(_PAGE_PAUSE_SECONDS)
        if deleted:
            UniqueUserCounter.log.warning(
                "store out of memory, joins refused: deleted markers of unique users, so their counts may be too high",
                markers=deleted,
            )
        return deleted


SEND_SECONDS = 3.0
MAX_NAMES = 1000
"""Different (program, reason) pairs between two batches."""
KEPT_NAMES = 200
"""The most frequent pairs of a batch, which keep their entries for the next one."""


@dataclass(eq=False)
class ClientSoftwareCounter(_Queue):
    """``name`` says which program a peer id names."""

    _: KW_ONLY
    name: Callable[[PeerId], str] = client_name
    flush_seconds: float = 3.0
    log, unit, counter = Logger("tracker.software"), "events", "software_dropped"
    texts = (
        "client programs not counted at shutdown",
        "client programs not counted: too many names, or refused by the store",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts: dict[ClientEvent, int] = {}
        self._addresses: defaultdict[ClientEvent, set[Address]] = defaultdict(set)
        """Some addresses of each pair since the last batch, as many as a new one needs."""
        self._batches = 0
        self._batch: tuple[int, dict[ClientEvent, int], float, dict[ClientEvent, set[Address]]]

    @property
    def waiting(self) -> int:
        return sum(self._counts.values()) + self._in_batch

    def add(self, peer_id: PeerId, label: str, address: Address) -> None:
        """Counts a join, or a refusal with this failure ``label``. Takes a few microseconds."""
        pair = self.name(peer_id), label
        known = self._counts.get(pair)
        if known is None and len(self._counts) >= MAX_NAMES:
            self._drop(1)
            return
        self._counts[pair] = (known or 0) + 1
        addresses = self._addresses[pair]
        if len(addresses) < MIN_ADDRESSES:
            addresses.add(address)

    async def run(self) -> None:
        """Runs until cancelled. Call ``flush`` afterwards."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(self._send_next, SEND_SECONDS, "cannot count client programs", sleep=self.sleep))
            tasks.create_task(forever(self._log_drops, LOG_SECONDS, sleep=self.sleep))

    async def _send(self) -> None:
        """Sends all current counts, batch by batch."""
        async with self._sending:
            if self._in_batch:
                await self._send_batch()
            sent = {pair: number for pair, number in self._counts.items() if number}
            waiting = list(sent)
            for at in range(0, len(waiting), client_software.MAX_BATCH):
                self._take(waiting[at : at + client_software.MAX_BATCH])
                await self._send_batch()
            if sent:
                frequent = set(nlargest(KEPT_NAMES, self._counts, key=lambda pair: sent.get(pair, 0)))
                self._counts = {pair: number for pair, number in self._counts.items() if number or pair in frequent}

    def _take(self, pairs: Sequence[ClientEvent]) -> None:
        """A batch of these pairs. Names that become equal when they are cleaned for storage add up."""
        counts: dict[ClientEvent, int] = {}
        addresses = defaultdict[ClientEvent, set[Address]](set)
        for each in pairs:
            stored = shown(*each)
            counts[stored] = counts.get(stored, 0) + self._counts[each]
            addresses[stored] |= self._addresses.pop(each)
            self._counts[each] = 0
        self._batches += 1
        self._batch = self._batches, counts, self.store.clock(), addresses
        self._in_batch = sum(counts.values())

    async def _send_batch(self) -> None:
        await self.store.client_software.add(*self._batch)
        self._end_batch()

    def _clear(self) -> None:
        self._counts.clear()
        self._addresses.clear()
