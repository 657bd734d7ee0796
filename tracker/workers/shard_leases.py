"""Shares the shards of a store among its trackers: each does the background work of its part."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.sharding.leases import LEASE_SECONDS, ShardLeases
from tracker.store.sharding.shards import Shard, Shards

ROUND_SECONDS = LEASE_SECONDS / 3

log = structlog.get_logger("tracker.shards")


class LeaseKeeper:
    """Takes and renews the leases of as many shards as are this tracker's share. ``token`` names this tracker;
    ``clock`` returns epoch seconds.

    A shard that does not answer keeps its state: no other tracker can take it then.
    """

    def __init__(
        self,
        store: ShardLeases,
        shards: Shards,
        token: str,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._shards = shards
        self._token = token
        self._clock = clock
        self._sleep = sleep
        self._trackers = 1
        self._held = [asyncio.Event() for _ in shards]
        self._lost = [asyncio.Event() for _ in shards]
        for lost in self._lost:
            lost.set()

    @property
    def held(self) -> list[int]:
        """The numbers of the shards that are this tracker's."""
        return [number for number, held in enumerate(self._held) if held.is_set()]

    async def until_held(self, number: int) -> None:
        await self._held[number].wait()

    async def until_lost(self, number: int) -> None:
        await self._lost[number].wait()

    async def run(self) -> None:
        """Runs until cancelled, then releases the leases."""
        try:
            while True:
                await self.round()
                await self._sleep(ROUND_SECONDS)
        finally:
            await asyncio.shield(self._release_all())

    async def round(self) -> None:
        """Renews the leases, and takes or releases some until they are this tracker's share."""
        now = int(self._clock())
        with suppress(StoreUnavailable, RedisError):  # without home, the last number holds
            self._trackers = await self._store.count_trackers(self._token, now)
        share = math.ceil(len(self._shards) / self._trackers)
        held = self.held
        for number in held[share:]:
            self._set(number, held=False)
            await self._release(self._shards[number], now)
        await asyncio.gather(*(self._take(number, now) for number in held[:share]))
        for number in range(len(self._shards)):
            if len(self.held) >= share:
                break
            if number not in held:
                await self._take(number, now)

    async def _take(self, number: int, now: int) -> None:
        if self._shards[number].connection.unavailable:
            return
        try:
            self._set(number, held=await self._store.take(self._shards[number], self._token, now))
        except (StoreUnavailable, RedisError) as error:
            log.warning("the lease of a shard is not renewed", shard=number, error=str(error))

    async def _release(self, shard: Shard, now: int) -> None:
        with suppress(StoreUnavailable, RedisError):  # it ends by itself
            await self._store.release(shard, self._token, now)

    async def _release_all(self) -> None:
        now, held = int(self._clock()), self.held
        for number in held:
            self._set(number, held=False)
        await asyncio.gather(*(self._release(self._shards[number], now) for number in held))
        with suppress(StoreUnavailable, RedisError):
            await self._store.leave(self._token)

    def _set(self, number: int, *, held: bool) -> None:
        if held != self._held[number].is_set():
            events = (self._held[number], self._lost[number])
            for event, is_set in zip(events, (held, not held), strict=True):
                event.set() if is_set else event.clear()
