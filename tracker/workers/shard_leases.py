"""Shares the shards of a store among its trackers: each does the background work of its part."""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.scripts import Scripts
from tracker.store.jobs.lease import Lease
from tracker.store.sharding.shards import Shards
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever

LEASE_SECONDS = 15
ROUND_SECONDS = LEASE_SECONDS / 3

log = Logger("tracker.shards")


class LeaseKeeper:
    """Takes and renews the leases of as many shards as are this tracker's share. Leases are in the shards; ``scripts``
    are of the main prefix, where the trackers that share them have leases too. ``token`` names this tracker; ``clock``
    returns epoch seconds.

    A shard that does not answer keeps its state: no other tracker can take it then.
    """

    def __init__(
        self, scripts: Scripts, shards: Shards, token: str, clock: Callable[[], float], sleep: Sleep = asyncio.sleep
    ) -> None:
        self._shards = shards
        self._sleep = sleep
        self._listed = Lease(scripts, "trackers", token, LEASE_SECONDS, clock, token)
        self._leases = [Lease(shard.scripts, "shard", "background", LEASE_SECONDS, clock, token) for shard in shards]
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
            await forever(self.round, ROUND_SECONDS, sleep=self._sleep)
        finally:
            await asyncio.shield(self._release_all())

    async def round(self) -> None:
        """Renews the leases, and takes or releases some until they are this tracker's share."""
        with suppress(StoreUnavailable, RedisError):  # without the main store, the last number holds
            self._trackers = await self._listed.hold()
        share = math.ceil(len(self._shards) / self._trackers)
        held = self.held
        for number in held[share:]:
            self._set(number, held=False)
            await self._leases[number].release()
        await asyncio.gather(*map(self._take, held[:share]))
        for number in range(len(self._shards)):
            if len(self.held) >= share:
                break
            if number not in held:
                await self._take(number)

    async def _take(self, number: int) -> None:
        if self._shards[number].connection.unavailable:
            return
        try:
            self._set(number, held=bool(await self._leases[number].hold()))
        except (StoreUnavailable, RedisError) as error:
            log.warning("the lease of a shard is not renewed", shard=number, error=str(error))

    async def _release_all(self) -> None:
        held = self.held
        for number in held:
            self._set(number, held=False)
        await asyncio.gather(*(self._leases[number].release() for number in held), self._listed.release())

    def _set(self, number: int, *, held: bool) -> None:
        if held != self._held[number].is_set():
            events = (self._held[number], self._lost[number])
            for event, is_set in zip(events, (held, not held), strict=True):
                event.set() if is_set else event.clear()
