"""Deletes markers of unique users when joins were refused because the store is full: peers go before statistics."""

import asyncio

from tracker.store.client.connection import Connection
from tracker.store.stats.counters import Count
from tracker.store.stats.markers import Markers
from tracker.system.logger import Logger
from tracker.workers.loop import forever

EVERY_SECONDS = 5.0
_PAGE_PAUSE_SECONDS = 0.001
"""A pause between two pages, for announces."""

log = Logger("tracker.uniques")


class MarkerCleaner:
    def __init__(self, markers: Markers, connection: Connection, count: Count) -> None:
        self._markers = markers
        self._connection = connection
        self._count = count
        self._refused: int | None = None

    async def run(self) -> None:
        failure = "cannot delete markers of unique users"
        await forever(self.check, EVERY_SECONDS, failure, connection=self._connection)

    async def check(self) -> int:
        """Deletes markers if joins were refused since the last check; returns their number."""
        refused = await self._markers.refused_joins()
        before, self._refused = self._refused, refused
        if before is None or refused <= before:
            return 0
        deleted = 0
        async for total in self._markers.make_room():
            self._count("unique_forgotten", by=total - deleted)
            deleted = total
            await asyncio.sleep(_PAGE_PAUSE_SECONDS)
        if deleted:
            log.warning(
                "store out of memory, joins refused: deleted markers of unique users, so their counts may be too high",
                markers=deleted,
            )
        return deleted
