"""Removes expired slices of counters and distributions: fine ones often, coarse ones rarely.

The clock selects the precisions, so it does not matter which tracker runs the job.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tracker.store.stats.counters import Counters
from tracker.store.stats.slices import PRECISIONS
from tracker.system.logger import Logger

EVERY_SECONDS = 60
PAGE = 20
"""Counters in one script call."""
_VISITS_PER_SLICE = 5
"""More than one, so that a missed run does not matter."""

log = Logger("tracker.cleaner")


def due_precisions(now: float) -> list[int]:
    """The precisions to clean in this minute: each once a minute, or five times per slice."""
    minute = int(now // EVERY_SECONDS)
    return [p for p in PRECISIONS if minute % max(1, p // (EVERY_SECONDS * _VISITS_PER_SLICE)) == 0]


@dataclass(eq=False)
class CounterCleaner:
    """``clock`` gives epoch seconds."""

    counters: Counters
    clock: Callable[[], float]
    page: int = PAGE

    async def clean_once(self) -> int:
        """Removes expired slices; returns their number. Call this once a minute.

        It may be cancelled between pages, and run in several trackers at once. Raises StoreUnavailable and
        redis.exceptions.RedisError.
        """
        removed = entries = 0
        for precision in due_precisions(self.clock()):
            async for page in self.counters.clean(precision, self.page):
                removed += page.slices
                entries += page.entries
                if page.wrong:
                    log.error("counters with a wrong key type in the store", keys=page.wrong)
                await asyncio.sleep(0)
        if removed:
            log.debug("removed old slices", slices=removed, counters=entries)
        return removed
