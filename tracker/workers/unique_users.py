"""Counts unique users behind the announce path: joins wait here, are given their place, and go to the store in batches.

An announce only appends to a bounded queue; what does not fit is dropped, and the drop counted. A batch that the store
may or may not have counted is kept and sent again: the markers in the store let it count nothing twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog
from redis.exceptions import OutOfMemoryError, RedisError

from tracker.bittorrent import Address, InfoHash
from tracker.counting import Count
from tracker.errors import StoreAway
from tracker.geoip import Place
from tracker.settings import UniqueSettings
from tracker.store.connection import Connection
from tracker.store.metrics import NOWHERE, PlaceNames, place_names, user_name
from tracker.store.uniques import MAX_BATCH, Sighting, Uniques

LINGER_SECONDS = 0.25
"""How long the first of a batch may wait for others. The store's work for a batch is shared by all in it."""
REFRESH_SECONDS = 10.0
LOG_SECONDS = 60.0
FLUSH_SECONDS = 4.0
"""How long a graceful stop may take for what still waits."""
_PAUSE_SECONDS = 1.0
_MOST_TRIES = 5
_LOOKUPS_AT_ONCE = 16

log = structlog.get_logger("tracker.tally")


class Tally:
    """``lookup`` knows where an address is, ``refresh`` is called every 10 s (GeoIP), ``count`` takes the counters'
    names, and ``clock`` gives epoch seconds."""

    def __init__(
        self,
        uniques: Uniques,
        connection: Connection,
        settings: UniqueSettings,
        *,
        lookup: Callable[[Address], Place | None],
        refresh: Callable[[], None],
        count: Count,
        clock: Callable[[], float],
    ) -> None:
        self._uniques = uniques
        self._connection = connection
        self._most_waiting = settings.max_waiting
        self._ipv6_prefix = settings.ipv6_prefix
        self._lookup = lookup
        self._refresh = refresh
        self._count = count
        self._clock = clock
        self._waiting: deque[tuple[InfoHash, Address]] = deque()
        self._arrived = asyncio.Event()
        self._sending = asyncio.Lock()
        self._batch: list[Sighting] = []
        self._batch_time = 0.0
        self._tries = 0
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """Joins that are not counted yet."""
        return len(self._waiting) + len(self._batch)

    def offer(self, info_hash: InfoHash, address: Address) -> None:
        """Takes a join to be counted later; when too many wait it is dropped."""
        if len(self._waiting) >= self._most_waiting:
            self._drop(1)
            return
        self._waiting.append((info_hash, address))
        self._arrived.set()

    def _drop(self, joins: int) -> None:
        self._dropped += joins
        self._count("tally_dropped", by=joins)

    async def run(self) -> None:
        """Runs until cancelled, whatever the store does meanwhile. What waits then is for ``flush``."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self._send_batches, self._refresh_places, self._tell_of_drops):
                tasks.create_task(part(), name=f"tally {part.__name__}")

    async def _send_batches(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self.waiting:
                if self.waiting < MAX_BATCH:
                    await asyncio.sleep(LINGER_SECONDS)
                await self._persist()

    async def _persist(self) -> None:
        """Sends one batch, now or when the store is able to take it; gives up on one that it refuses again and again."""
        try:
            await self._send_one()
        except StoreAway:
            await asyncio.sleep(0.1)
            await self._connection.until_back()
        except OutOfMemoryError:  # nothing was run; what is too much waits here, and no longer than it fits
            await asyncio.sleep(_PAUSE_SECONDS)
        except RedisError as error:
            log.error("counting unique users failed", error=str(error))
            self._tries += 1
            if self._tries >= _MOST_TRIES:
                self._drop(len(self._batch))
                self._batch, self._tries = [], 0
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _send_one(self) -> None:
        async with self._sending:
            if not self._batch:
                await self._fill()
            new = await self._uniques.sight(self._batch, self._batch_time)
            self._batch, self._tries = [], 0
            if new:
                self._count("unique.new", by=new)

    async def _fill(self) -> None:
        """Takes what waits into the batch. Every few lookups others have their turn: announces do not wait for these."""
        self._batch_time = self._clock()
        while self._waiting and len(self._batch) < MAX_BATCH:
            info_hash, address = self._waiting.popleft()
            user = user_name(address, self._ipv6_prefix)
            self._batch.append(Sighting(info_hash, user, self._place(address)))
            if len(self._batch) % _LOOKUPS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _place(self, address: Address) -> PlaceNames:
        place = self._lookup(address)
        if place is None:
            return NOWHERE
        return place_names(place.country, place.subdivision, place.city, place.postcode)

    async def flush(self) -> None:
        """Counts all that waits, at a graceful stop; what the store does not take in time is dropped."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while self.waiting:
                    await self._send_one()
        except (StoreAway, RedisError, TimeoutError) as error:
            log.warning("joins were not tallied at the stop", joins=self.waiting, error=str(error))
            self._drop(self.waiting)
            self._waiting.clear()
            self._batch = []

    async def _refresh_places(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            self._refresh()

    async def _tell_of_drops(self) -> None:
        """One line a minute at most."""
        told = 0
        while True:
            await asyncio.sleep(LOG_SECONDS)
            if self._dropped > told:
                log.warning(
                    "joins were not tallied: too many wait, or the store refuses them",
                    joins=self._dropped - told,
                )
                told = self._dropped
