"""Counts announces by user and by torrent, and adds them every few seconds. Adding each to its torrent at once would
cost a twelfth of its time in the store."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from redis.exceptions import RedisError

from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.sharding.shards import Shard, Shards
from tracker.system.logger import Logger

FLUSH_SECONDS = 10.0
"""A crash of the process may lose the announces of this time, and of the seconds in which counts are written."""
MAX_WAITING = 20_000
"""Where announces of more torrents and users wait, all are written before their time. As many may wait while they are
written. They take some megabytes."""
CALL_PAUSE_SECONDS = 0.02
"""Between two calls, so that the store has time for announces."""
LOOK_SECONDS = 1.0
"""How often the number of those that wait is looked at."""
_PER_CALL = 100
"""Torrents and users in one call of the store: it takes as long as a small batch of announces."""

Pause = Callable[[float], Awaitable[object]]
Add = Callable[[Iterable[InfoHash | str]], None]
"""Counts one announce for each info hash and user id. While the store is unavailable, there is none to count."""

log = Logger("tracker.store")


class AnnounceCounts:
    """Announces that are not yet in the store."""

    def __init__(self, shards: Shards) -> None:
        self._counts = {shard: Counter[InfoHash | str]() for shard in shards}

    def of(self, shard: Shard) -> Counter[InfoHash | str]:
        """Those of a shard, by info hash and by user id; ``update`` is an Add."""
        return self._counts[shard]

    def __len__(self) -> int:
        """Torrents and users whose announces wait. While they are written, those that came later."""
        return sum(map(len, self._counts.values()))

    async def run(
        self, pause_seconds: float = FLUSH_SECONDS, look_seconds: float = LOOK_SECONDS, pause: Pause = asyncio.sleep
    ) -> None:
        """Writes every ``pause_seconds``, and when many wait; until cancelled. ``pause`` waits some seconds; between
        calls it does so unless many wait."""

        async def pause_between_calls(seconds: float) -> None:
            if len(self) <= MAX_WAITING:
                await pause(seconds)

        while True:
            left = pause_seconds
            while left > 0:
                await pause(min(left, look_seconds))
                left = left - look_seconds if len(self) <= MAX_WAITING else 0
            await self.flush(pause_between_calls)

    async def flush(self, pause: Pause | None = None) -> None:
        """Writes all counts; keeps those of a shard that is unavailable. Those of a call without a reply are dropped:
        the store may have them. ``pause`` is awaited between the calls; without it, all shards are written at once."""
        if pause is None:
            await asyncio.gather(*(self._flush(shard, None) for shard in self._counts))
            return
        for shard in self._counts:
            await self._flush(shard, pause)

    async def _flush(self, shard: Shard, pause: Pause | None) -> None:
        counts = self._counts[shard]
        waiting = list(counts.items())
        counts.clear()
        try:
            while waiting and not shard.connection.unavailable:
                part, waiting = waiting[:_PER_CALL], waiting[_PER_CALL:]
                argv: list[Argument] = []
                for whose, number in part:
                    argv += whose if isinstance(whose, str) else whose.hex(), number
                await shard.scripts.count_announces(argv)
                if pause is not None:
                    await pause(CALL_PAUSE_SECONDS)
        except StoreUnavailable:
            return
        except RedisError as error:
            log.error("announces were not counted", error=str(error))
        finally:
            counts.update(dict(waiting))
