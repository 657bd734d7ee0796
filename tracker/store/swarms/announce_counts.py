"""Counts regular announces by torrent, and adds them to the torrents every few seconds.

Nine of ten announces are regular. Adding each to its torrent at once would cost a twelfth of its time in the store. All
other announces are counted when they are applied, so the sweep can tell from the count whether a swarm has changed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

import structlog
from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts

FLUSH_SECONDS = 10.0
"""What a crash of the process may lose."""
MAX_TORRENTS = 20_000
"""Torrents whose announces are counted here at a time: some megabytes."""
_PER_CALL = 200
"""Torrents in one call of the store: no longer than a large batch of announces."""

log = structlog.get_logger("tracker.store")


class AnnounceCounts:
    """Announces that are not yet in the store."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts
        self._counts: Counter[InfoHash] = Counter()
        self._full = asyncio.Event()

    def __len__(self) -> int:
        """Torrents whose announces wait."""
        return len(self._counts)

    def add(self, torrents: Iterable[InfoHash]) -> None:
        """Counts one announce for each; none while twice as many torrents wait as should."""
        counts = self._counts
        if len(counts) >= MAX_TORRENTS:
            self._full.set()
            if len(counts) >= 2 * MAX_TORRENTS:
                return
        counts.update(torrents)

    async def run(self, pause_seconds: float = FLUSH_SECONDS) -> None:
        """Writes every ``pause_seconds``, and when there are many torrents; until cancelled."""
        while True:
            try:
                async with asyncio.timeout(pause_seconds):
                    await self._full.wait()
            except TimeoutError:
                pass
            await self.flush()

    async def flush(self) -> None:
        """Writes all counts; keeps them while the store is unavailable. Those of a call without a reply are dropped:
        the store may have them."""
        self._full.clear()
        while self._counts and not self._connection.unavailable:
            part = [self._counts.popitem() for _ in range(min(_PER_CALL, len(self._counts)))]
            try:
                await self._scripts.count_announces(
                    [each for info_hash, number in part for each in (info_hash.hex(), number)]
                )
            except StoreUnavailable:
                return
            except RedisError as error:
                log.error("announces of torrents were not counted", error=str(error))
                return
