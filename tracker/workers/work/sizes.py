"""Adds up every six hours how many bytes of the registered torrents have how many seeders.

A million torrents cost the store a few seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tracker.store.work.sizes import CLASSES, Sizes

EVERY_SECONDS = 21_600
_PAUSE_SECONDS = 0.002


class WorkSizes:
    """``sleep`` waits between script calls."""

    def __init__(self, sizes: Sizes, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._sizes = sizes
        self._sleep = sleep

    async def handle(self, _: object) -> None:
        """Handles jobs of the queue ``work_sizes``. An interrupted walk starts again and stores nothing."""
        sums, cursor = [0] * len(CLASSES), ""
        while cursor != "0":
            cursor, some = await self._sizes.scan(cursor or "0")
            sums = [a + b for a, b in zip(sums, some, strict=True)]
            await self._sleep(_PAUSE_SECONDS)
        await self._sizes.save(sums)
