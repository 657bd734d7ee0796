"""Removes slices that are over from the counters and distributions: fine ones often, coarse ones now and then.

Which precisions it is time for, the clock says: whichever tracker gets the job goes on where another left off.
"""

import asyncio
from collections.abc import Callable

import structlog

from tracker.store.counters import Counters
from tracker.store.slices import PRECISIONS

EVERY_SECONDS = 60
_PAGE = 20
_VISITS_PER_SLICE = 5
"""A visit that is missed because no tracker is there at that minute should not matter."""

log = structlog.get_logger("tracker.cleaner")


def due_precisions(now: float) -> list[int]:
    """Those that are visited in this minute: each once a minute or five times in the length of its slice."""
    minute = int(now // EVERY_SECONDS)
    return [p for p in PRECISIONS if minute % max(1, p // (EVERY_SECONDS * _VISITS_PER_SLICE)) == 0]


class Cleaner:
    """``clock`` gives epoch seconds."""

    def __init__(self, counters: Counters, clock: Callable[[], float]) -> None:
        self._counters = counters
        self._clock = clock

    async def clean_once(self) -> int:
        """To be called once a minute: how many slices were removed. May be cancelled between pages, and be at work in
        several trackers at once. Raises StoreAway and redis.exceptions.RedisError."""
        removed = entries = 0
        for precision in due_precisions(self._clock()):
            async for page in self._counters.clean(precision, _PAGE):
                removed += page.slices
                entries += page.entries
                if page.wrong:
                    log.error("the store has keys of a wrong type where counts belong", keys=page.wrong)
                await asyncio.sleep(0)
        if removed:
            log.debug("removed old slices", slices=removed, counters=entries)
        return removed
