"""Counts regular announces by torrent, and adds them to the torrents every few seconds.

Nine of ten announces are regular. Adding each to its torrent at once would cost a twelfth of its time in the store. All
other announces are counted when they are applied, so the sweep can tell from the count whether a swarm has changed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import structlog
from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts

FLUSH_SECONDS = 10.0
"""What a crash of the process may lose."""
MAX_TORRENTS = 20_000
"""Where announces of more torrents wait, all are written before their time. They take some megabytes."""
LOOK_SECONDS = 1.0
"""How often the number of torrents is looked at."""
_PER_CALL = 200
"""Torrents in one call of the store: no longer than a large batch of announces."""

log = structlog.get_logger("tracker.store")


class AnnounceCounts:
    """Announces that are not yet in the store."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts
        self._counts: Counter[InfoHash] = Counter()
        self.add: Callable[[Iterable[InfoHash]], None] = self._counts.update
        """Counts one announce for each. While the store is unavailable, there is none to count."""

    def __len__(self) -> int:
        """Torrents whose announces wait."""
        return len(self._counts)

    async def run(self, pause_seconds: float = FLUSH_SECONDS, look_seconds: float = LOOK_SECONDS) -> None:
        """Writes every ``pause_seconds``, and when there are many torrents; until cancelled."""
        while True:
            left = pause_seconds
            while left > 0 and len(self) <= MAX_TORRENTS:
                await asyncio.sleep(min(left, look_seconds))
                left -= look_seconds
            await self.flush()

    async def flush(self) -> None:
        """Writes all counts; keeps them while the store is unavailable. Those of a call without a reply are dropped:
        the store may have them."""
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
