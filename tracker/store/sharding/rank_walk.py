"""Walks that rank what a shard has for lists, page after page."""

import asyncio
from collections.abc import Awaitable, Callable

from redis.exceptions import OutOfMemoryError

from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shard

PAUSES = 4.0
"""A walk pauses so many times as long as each of its calls took. So it uses at most a fifth of the store's time."""
INDEXES = b"1"
"""The version of the indexes that walks write for what does not change. A new one has all ranked."""
Pause = Callable[[float], Awaitable[object]]
"""Waits some seconds."""


class RankWalk:
    """Each process keeps its own position. ``rank`` ranks a page from a cursor on, and returns the next cursor and how
    many it visited. ``name``: the field of `indexed`."""

    def __init__(self, shard: Shard, name: str, rank: Callable[[bytes], Awaitable[tuple[bytes, int]]]) -> None:
        self._connection, self._indexed = shard.connection, shard.keys.indexed()
        self._name, self._rank = name, rank
        self._cursor, self._ranks_all = b"0", False

    async def is_complete(self) -> bool:
        """Whether all were ranked since the indexes were introduced. Before that, lists may miss some."""
        return bool(await self._connection.command("HGET", self._indexed, self._name) == INDEXES)

    async def go_on(self, most: int, pause: Pause, *, ranks_all: bool) -> bool:
        """Ranks about ``most``, or all, also if the indexes are incomplete. If the store is out of memory, returns
        False, and the next call goes on there. Raises StoreUnavailable."""
        visited, timer = 0, asyncio.get_running_loop().time
        try:
            ranks_all = ranks_all or not await self.is_complete()
            if ranks_all and not self._ranks_all:
                self._cursor = b"0"
            self._ranks_all = ranks_all
            while ranks_all or visited < most:
                began = timer()
                self._cursor, ranked = await self._rank(self._cursor)
                visited += ranked
                if self._cursor == b"0":
                    break
                await pause(PAUSES * (timer() - began))
            if ranks_all:
                await self._connection.command("HSET", self._indexed, self._name, INDEXES)
        except OutOfMemoryError:
            return False
        except StoreUnavailable:
            self._ranks_all = False  # another server may take over, which reads a cursor differently
            raise
        self._ranks_all = False
        return True
