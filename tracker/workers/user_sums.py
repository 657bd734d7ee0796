"""Keeps users of a store with several shards alike: copies their rows into the shards, and their sums to the main
prefix.

Both are done at once where a tracker changes a user. This worker does the rest: changes of programs, of trackers that
ended meanwhile, and of shards that were unavailable. It asks all shards at a time whether there is something to do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.users.copies import UserCopies
from tracker.store.users.rules import Multipliers
from tracker.store.users.sums import UserSums
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever

PAUSE_SECONDS = 2.0
WALK_PARTS = 400
"""About how many parts of users, one in each shard, a step of the walk through all users reads."""

log = Logger("tracker.users")


@dataclass(eq=False)
class UserSumsWorker:
    """``held`` returns the numbers of the shards that are this tracker's."""

    shards: Shards
    copies: UserCopies
    sums: UserSums
    multipliers: Multipliers
    held: Callable[[], list[int]]
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._parts = (
            (self.copies.missing, self.copies.copy_to),
            (self.multipliers.outdated, self.multipliers.copy_to),
            (self.sums.changed, self._save_changed),
        )
        self._cursor = b"0"

    async def run(self) -> None:
        await forever(self.round, PAUSE_SECONDS, sleep=self.sleep)

    async def round(self) -> None:
        """Does what there is to do now."""
        held = [self.shards[number] for number in self.held()]
        for find, update in self._parts:
            for shard in await self._found(find, held):
                await self._survive(update(shard))
        if self.shards[0] in held:  # one tracker walks through all users
            await self._survive(self._walk())

    @staticmethod
    async def _found(
        find: Callable[[Sequence[Shard]], Awaitable[list[Shard]]], held: Sequence[Shard]
    ) -> Sequence[Shard]:
        """What ``find`` returns for the shards that are there; all of these if one cannot be asked."""
        there = [shard for shard in held if not shard.connection.unavailable]
        try:
            return await find(there) if there else there
        except (StoreUnavailable, RedisError):
            return there

    async def _save_changed(self, shard: Shard) -> None:
        if not self.shards.unavailable:  # a sum needs all of them
            await self.sums.save_changed(shard)

    async def _walk(self) -> None:
        if self.shards.unavailable:
            return
        users = max(1, WALK_PARTS // len(self.shards))
        self._cursor = await self.sums.save_page(self._cursor, users)

    @staticmethod
    async def _survive(work: Awaitable[object]) -> None:
        try:
            await work
        except StoreUnavailable:
            return
        except RedisError as error:
            log.error("users of a shard are not updated", error=str(error))
