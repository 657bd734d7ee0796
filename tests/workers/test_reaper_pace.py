"""How much of the store's time the sweep takes (behind row T9)."""

import asyncio
from collections.abc import Sequence

from tests.store.harness import Store, update
from tracker.store.reaping import Reaping, SweepStep
from tracker.workers.reaper import SWEEP_BUDGET, Reaper

PEERS = 4 * SWEEP_BUDGET


class Timed:
    """A store's reaping, with the time that its sweeps took."""

    def __init__(self, reaping: Reaping) -> None:
        self._reaping = reaping
        self.size, self.page, self.check_totals = reaping.size, reaping.page, reaping.check_totals
        self.calls, self.seconds = 0, 0.0

    async def sweep(self, torrent_ids: Sequence[str], position: str, budget: int) -> SweepStep:
        began = asyncio.get_running_loop().time()
        try:
            return await self._reaping.sweep(torrent_ids, position, budget)
        finally:
            self.calls += 1
            self.seconds += asyncio.get_running_loop().time() - began


async def test_a_sweep_in_a_hurry_leaves_the_store_to_others(store: Store) -> None:
    """A third of its time at most, from one call to the next."""
    for peer in range(PEERS):
        await store.announce(update(peer, "s"))
    timed = Timed(store.reaping)
    reaper = Reaper(timed, store.connection, store.keys, store.counters, 60, store.clock)  # type: ignore[arg-type]
    began = asyncio.get_running_loop().time()
    await reaper.sweep_once(0.0)
    taken = asyncio.get_running_loop().time() - began
    assert timed.calls >= PEERS // SWEEP_BUDGET
    assert taken >= 3 * timed.seconds * 0.99
