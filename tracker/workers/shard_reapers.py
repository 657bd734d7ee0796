"""The reapers of all shards that are this tracker's, as one."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tracker.errors import StoreUnavailable
from tracker.store.swarms.reaping import Reaping
from tracker.workers.loop import forever
from tracker.workers.reaper import Reaper, send_heartbeats
from tracker.workers.shard_leases import LeaseKeeper


class ShardReapers:
    """``reapers``: one of each shard, by number. ``main`` gets heartbeats. The figures are those of
    the worst reaper that runs here."""

    def __init__(self, reapers: Sequence[Reaper], main: Reaping, leases: LeaseKeeper) -> None:
        self._reapers = tuple(reapers)
        self._main = main
        self._leases = leases

    @property
    def _running(self) -> list[Reaper]:
        """Without those whose shards are unavailable: their lateness has that cause."""
        return [reaper for number in self._leases.held if (reaper := self._reapers[number]).has_store]

    @property
    def interval(self) -> float:
        return self._reapers[0].interval

    @property
    def missing_events(self) -> bool:
        return any(reaper.missing_events for reaper in self._running)

    @property
    def sweep_behind(self) -> bool:
        return any(reaper.sweep_behind for reaper in self._running)

    @property
    def due_behind_seconds(self) -> float:
        return max((reaper.due_behind_seconds for reaper in self._running), default=0.0)

    @property
    def swept_at(self) -> float:
        return min((reaper.swept_at for reaper in self._running), default=0.0)

    @property
    def sweep_seconds(self) -> float:
        return max((reaper.sweep_seconds for reaper in self._running), default=0.0)

    @property
    def held(self) -> list[int]:
        """The numbers of the shards whose background work is this tracker's."""
        return self._leases.held

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._leases.run(), name="leases of shards")
            tasks.create_task(send_heartbeats([self._main]), name="heartbeat of the main store")
            for number in range(len(self._reapers)):
                tasks.create_task(forever(partial(self._reap, number), 0.0), name=f"reaper of shard {number}")

    async def _reap(self, number: int) -> None:
        await self._leases.until_held(number)
        async with asyncio.TaskGroup() as tasks:
            reaping = tasks.create_task(self._reapers[number].run())
            await self._leases.until_lost(number)
            reaping.cancel()

    async def sweep_once(self, *, hurry: bool) -> None:
        """Sweeps all shards, one after the other, also those of other trackers. An unavailable one is swept when it is
        back."""
        for reaper in self._reapers:
            if reaper.has_store:
                with suppress(StoreUnavailable):
                    await reaper.sweep_once(hurry=hurry)


AnyReaper = Reaper | ShardReapers
