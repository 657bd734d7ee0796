"""Renames the places of unique users from an earlier version, once, at the start; counting waits for it."""

import asyncio

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.stats.place_names import PlaceNameMigration

WAIT_SECONDS = 0.5
"""How often to check whether another process has finished."""
_PAUSE_SECONDS = 5.0

log = structlog.get_logger("tracker.renaming")


class PlaceRenamer:
    """``done`` is set when no earlier name is left."""

    def __init__(self, migration: PlaceNameMigration, connection: Connection) -> None:
        self.done = asyncio.Event()
        self._migration = migration
        self._connection = connection

    async def run(self) -> None:
        """Returns when it is done; survives errors of the store."""
        while not self.done.is_set():
            try:
                await self._finish()
            except StoreUnavailable:
                await asyncio.sleep(0.1)
                await self._connection.until_available()
            except RedisError as error:  # for example out of memory
                log.error("cannot rename places of unique users yet", error=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _finish(self) -> None:
        while await self._migration.needed():
            if not await self._migration.claim():
                await asyncio.sleep(WAIT_SECONDS)
                continue
            log.debug("renaming places of unique users")
            if left := await self._migration.run():
                log.warning("places of unique users not renamed: keys of another type", keys=left)
        self.done.set()
