"""Keeps users of a store with several shards alike: copies their rows into the shards, and their sums to home.

Both are done at once where a tracker changes a user. This worker does the rest: changes of programs, of trackers that
ended meanwhile, and of shards that were away.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.sharding.user_copies import UserCopies
from tracker.store.sharding.user_sums import UserSums

PAUSE_SECONDS = 2.0

log = structlog.get_logger("tracker.users")


class UserSumsWorker:
    """``held`` returns the numbers of the shards that are this tracker's. ``copy_multipliers`` copies those for
    everybody into a shard."""

    def __init__(
        self,
        shards: Shards,
        copies: UserCopies,
        sums: UserSums,
        copy_multipliers: Callable[[Shard], Awaitable[None]],
        held: Callable[[], list[int]],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._shards = shards
        self._copies = copies
        self._sums = sums
        self._copy_multipliers = copy_multipliers
        self._held = held
        self._sleep = sleep
        self._cursor = b"0"

    async def run(self) -> None:
        """Runs until cancelled; survives errors of the store."""
        while True:
            held = self._held()
            for number in held:
                await self._survive(self._update(self._shards[number]))
            if 0 in held:  # one tracker walks through all users
                await self._survive(self._walk())
            await self._sleep(PAUSE_SECONDS)

    async def _update(self, shard: Shard) -> None:
        await self._copies.copy_to(shard)
        await self._copy_multipliers(shard)
        if not self._shards.away:  # a sum needs all of them
            await self._sums.save_changed(shard)

    async def _walk(self) -> None:
        if self._shards.away:
            return
        self._cursor = await self._sums.save_page(self._cursor)

    @staticmethod
    async def _survive(work: Awaitable[None]) -> None:
        try:
            await work
        except StoreUnavailable:
            return
        except RedisError as error:
            log.error("users of a shard are not updated", error=str(error))
