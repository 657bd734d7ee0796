"""Brings what a site wrote into users' rows at home to the shards: published changes at once, others by a walk."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shards
from tracker.store.sharding.user_copies import UserCopies

PAUSE_SECONDS = 2.0
_ERROR_SECONDS = 0.5

log = structlog.get_logger("tracker.users")


class SiteUsers:
    """``connection`` and ``keys`` are those of home. ``held`` returns the numbers of the shards that are this
    tracker's: the tracker that has the first one does this work."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        shards: Shards,
        copies: UserCopies,
        held: Callable[[], list[int]],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._connection = connection
        self._channel = keys.channel("users")
        self._shards = shards
        self._copies = copies
        self._held = held
        self._sleep = sleep

    async def run(self) -> None:
        """Runs until cancelled; survives errors of the store."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._walk())

    async def _follow(self) -> None:
        """A message on ``t:{home}:users`` names a user by passkey or id. A lost one is made up for by the walk."""
        while True:
            await self._connection.until_available()
            try:
                async with self._connection.subscription(channels=[self._channel]) as messages:
                    async for _, payload in messages:
                        if 0 in self._held():
                            await self._survive(self._copies.compare_one(payload, self._shards[0]))
            except (StoreUnavailable, RedisError):  # RedisError: the store forbids the subscription
                await self._sleep(_ERROR_SECONDS)

    async def _walk(self) -> None:
        cursor = b"0"
        while True:
            if 0 in self._held():
                after = await self._survive(self._copies.compare_page(cursor, self._shards[0]))
                cursor = after or cursor
            await self._sleep(PAUSE_SECONDS)

    @staticmethod
    async def _survive(work: Awaitable[bytes | None]) -> bytes | None:
        try:
            return await work
        except StoreUnavailable:
            return None
        except RedisError as error:
            log.error("users that a site wrote are not copied", error=str(error))
            return None
