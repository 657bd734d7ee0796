"""Counts unique users outside the announce path: queues joins, looks up their places, and sends them in batches.

An announce only appends to a bounded queue. A join that does not fit is dropped and counted as dropped. A batch without
a reply of the store is sent again; markers in the store prevent counting it twice. Markers are deleted when joins were
refused because the store is full: peers go before statistics.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from redis.exceptions import OutOfMemoryError, RedisError

from tracker.bittorrent import Address, InfoHash
from tracker.errors import StoreUnavailable
from tracker.geoip import Place
from tracker.settings.background import UniqueSettings
from tracker.store.stats.metric_names import NOWHERE, place_names, user_name
from tracker.store.stats.unique_users import MAX_BATCH, UniqueUserEvent
from tracker.store.store import Store
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever

MAX_WAITING = 100_000
"""Joins that may wait in one process: 20 MB, and minutes of the store's absence. Further ones are dropped."""
LINGER_SECONDS = 0.25
"""How long the first join of a batch waits for others, because the store's work per batch is shared."""
REFRESH_SECONDS = 10.0
LOG_SECONDS = 60.0
FLUSH_SECONDS = 4.0
"""Time limit of the last batches at a graceful stop."""
_PAUSE_SECONDS = 1.0
_MAX_ATTEMPTS = 5
_LOOKUPS_PER_TURN = 16

log = Logger("tracker.unique_users")


@dataclass(eq=False)
class UniqueUserCounter:
    """``lookup`` returns the place of an address; ``refresh`` (GeoIP) is called every 10 s. ``flush`` takes
    at most ``flush_seconds``."""

    store: Store
    settings: UniqueSettings
    _: KW_ONLY
    lookup: Callable[[Address], Place | None]
    refresh: Callable[[], None]
    sleep: Sleep = asyncio.sleep
    flush_seconds: float = FLUSH_SECONDS
    max_waiting: int = MAX_WAITING

    def __post_init__(self) -> None:
        self._waiting: deque[tuple[InfoHash, Address]] = deque()
        self._arrived = asyncio.Event()
        self._sending = asyncio.Lock()
        self._batch: list[UniqueUserEvent] = []
        self._batch_time = 0.0
        self._attempts = 0
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """Joins not counted yet."""
        return len(self._waiting) + len(self._batch)

    def add(self, info_hash: InfoHash, address: Address) -> None:
        """Queues a join; drops it when the queue is full."""
        if len(self._waiting) >= self.max_waiting:
            self._drop(1)
            return
        self._waiting.append((info_hash, address))
        self._arrived.set()

    def _drop(self, joins: int) -> None:
        self._dropped += joins
        self.store.counters.count("tally_dropped", by=joins)

    async def run(self) -> None:
        """Runs until cancelled. Call ``flush`` afterwards."""
        sleep = self.sleep
        sending = partial(forever, error_seconds=_PAUSE_SECONDS, connection=self.store.connection, sleep=sleep)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sending(self._send_next, 0.0, "cannot count unique users"))
            tasks.create_task(forever(self._refresh_places, REFRESH_SECONDS, sleep=sleep))
            tasks.create_task(forever(self._log_drops, LOG_SECONDS, sleep=sleep))

    async def _send_next(self) -> None:
        """Waits for joins and sends one batch. Drops a batch that the store refuses five times."""
        while not self.waiting:
            self._arrived.clear()
            await self._arrived.wait()
        if self.waiting < MAX_BATCH:
            await self.sleep(LINGER_SECONDS)
        try:
            await self._send_one()
        except OutOfMemoryError:  # the script did not run; joins wait in the bounded queue
            await self.sleep(_PAUSE_SECONDS)
        except RedisError:
            self._attempts += 1
            if self._attempts >= _MAX_ATTEMPTS:
                self._drop(len(self._batch))
                self._batch, self._attempts = [], 0
            raise

    async def _send_one(self) -> None:
        async with self._sending:
            if not self._batch:
                await self._fill()
            users = self.store.unique_users
            skipped, dropped = users.skipped, users.dropped
            new = await users.count(self._batch, self._batch_time)
            if skipped := users.skipped - skipped:
                self.store.counters.count("unique_skipped", by=skipped)
            if dropped := users.dropped - dropped:
                self._drop(dropped)
            self._batch, self._attempts = [], 0
            if new:
                self.store.counters.count("unique.new", by=new)

    async def _fill(self) -> None:
        """Moves waiting joins into the batch. Yields to announces after every 16 lookups."""
        self._batch_time = self.store.clock()
        while self._waiting and len(self._batch) < MAX_BATCH:
            info_hash, address = self._waiting.popleft()
            user, place = user_name(address, self.settings.ipv6_prefix), self.lookup(address)
            names = NOWHERE if place is None else place_names(place.country_name, place.city, place.postcode)
            self._batch.append(UniqueUserEvent(info_hash, user, names))
            if len(self._batch) % _LOOKUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def flush(self) -> None:
        """Counts what is waiting, at a graceful stop. Drops what the store does not accept in time."""
        try:
            async with asyncio.timeout(self.flush_seconds):
                while self.waiting:
                    await self._send_one()
        except (StoreUnavailable, RedisError, TimeoutError) as error:
            log.warning("unique users not counted at shutdown", joins=self.waiting, error=str(error))
            self._drop(self.waiting)
            self._waiting.clear()
            self._batch = []

    async def _refresh_places(self) -> None:
        self.refresh()

    async def _log_drops(self) -> None:
        if self._dropped:
            log.warning("unique users not counted: queue full, or refused by the store", joins=self._dropped)
            self._dropped = 0


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
            log.warning(
                "store out of memory, joins refused: deleted markers of unique users, so their counts may be too high",
                markers=deleted,
            )
        return deleted
