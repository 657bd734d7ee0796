"""Shares the shards of a store among its trackers: each does the background work of its part, with a reaper of each
shard."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.jobs.lease import Lease
from tracker.store.store import Store
from tracker.store.swarms.reaping import Reaping
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever
from tracker.workers.reaper import Reaper, send_heartbeats

LEASE_SECONDS = 15
ROUND_SECONDS = LEASE_SECONDS / 3

log = Logger("tracker.shards")


class LeaseKeeper:
    """Takes and renews the leases of as many shards as are this tracker's share. Leases are in the shards; in the main
    prefix the trackers that share them have leases too. ``token`` names this tracker; ``clock`` returns epoch seconds.
    A shard that does not answer keeps its state: no other tracker can take it then."""

    def __init__(self, store: Store, token: str, clock: Callable[[], float], sleep: Sleep = asyncio.sleep) -> None:
        self._shards = shards = store.shards
        self._sleep = sleep
        self._listed = Lease(store.scripts, "trackers", token, LEASE_SECONDS, clock, token)
        self._leases = [Lease(shard.scripts, "shard", "background", LEASE_SECONDS, clock, token) for shard in shards]
        self._trackers = 1
        self._changed = asyncio.Condition()
        self.held: list[int] = []
        """The numbers of the shards that are this tracker's."""

    async def until(self, number: int, *, held: bool) -> None:
        """Waits until a shard is this tracker's, or until it is not."""
        async with self._changed:
            await self._changed.wait_for(lambda: (number in self.held) == held)

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
        held = list(self.held)
        for number in held[share:]:
            await self._set(number, held=False)
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
            await self._set(number, held=bool(await self._leases[number].hold()))
        except (StoreUnavailable, RedisError) as error:
            log.warning("the lease of a shard is not renewed", shard=number, error=str(error))

    async def _release_all(self) -> None:
        held = list(self.held)
        for number in held:
            await self._set(number, held=False)
        await asyncio.gather(*(self._leases[number].release() for number in held), self._listed.release())

    async def _set(self, number: int, *, held: bool) -> None:
        if held != (number in self.held):
            self.held = sorted({*self.held, number} if held else {*self.held} - {number})
            async with self._changed:
                self._changed.notify_all()


class ShardReapers:
    """``reapers``: one of each shard, by number. ``main`` gets heartbeats."""

    def __init__(self, reapers: Sequence[Reaper], main: Reaping, leases: LeaseKeeper) -> None:
        self._reapers = tuple(reapers)
        self._main = main
        self._leases = leases

    @property
    def running(self) -> list[Reaper]:
        """Without those whose shards are unavailable: their lateness has that cause."""
        return [self._reapers[number] for number in self.held if not self._reapers[number].connection.unavailable]

    @property
    def interval(self) -> float:
        return self._reapers[0].interval

    @property
    def held(self) -> list[int]:
        """The numbers of the shards whose background work is this tracker's."""
        return self._leases.held

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._leases.run(), name="leases of shards")
            tasks.create_task(send_heartbeats([self._main]), name="heartbeat of the main store")
            for number in range(len(self._reapers)):
                tasks.create_task(forever(partial(self._reap, number), 0.0), name=f"reaper of shard {number}")

    async def _reap(self, number: int) -> None:
        """Reaps from when the shard is taken until it is lost."""
        await self._leases.until(number, held=True)
        async with asyncio.TaskGroup() as tasks:
            reaping = tasks.create_task(self._reapers[number].run())
            await self._leases.until(number, held=False)
            reaping.cancel()

    async def sweep_once(self, *, hurry: bool) -> None:
        """Sweeps all shards, one after the other, also those of other trackers. An unavailable one is swept when it is
        back."""
        for reaper in self._reapers:
            if not reaper.connection.unavailable:
                with suppress(StoreUnavailable):
                    await reaper.sweep_once(hurry=hurry)


AnyReaper = Reaper | ShardReapers
